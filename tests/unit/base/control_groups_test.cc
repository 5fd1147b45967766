// SPDX-License-Identifier: LGPL-2.1-or-later
#include "base/control_groups.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <optional>

#include "unit/base/root_folder.h"

namespace qtts {
namespace {

// tests/unit/cpu/thread_choice_test.cc tests the way to the groups' folders.
class MemoryLimitTest : public RootFolderTest {};

TEST_F(MemoryLimitTest, TheLeastOfAGroupAndThoseAboveIt) {
  EXPECT_EQ(MemoryLimit(root_), std::nullopt);
  Write("proc/self/cgroup", "0::/user.slice/app.scope\n");
  EXPECT_EQ(MemoryLimit(root_), std::nullopt);
  Write("sys/fs/cgroup/user.slice/app.scope/memory.max", "max\n");
  EXPECT_EQ(MemoryLimit(root_), std::nullopt);
  Write("sys/fs/cgroup/user.slice/memory.max", "8589934592\n");
  EXPECT_EQ(MemoryLimit(root_), size_t{8589934592});
  Write("sys/fs/cgroup/user.slice/app.scope/memory.max", "9000000000\n");
  EXPECT_EQ(MemoryLimit(root_), size_t{8589934592});
  Write("sys/fs/cgroup/user.slice/app.scope/memory.max", "1048576\n");
  EXPECT_EQ(MemoryLimit(root_), size_t{1048576});
}

TEST_F(MemoryLimitTest, Version1) {
  Write("proc/self/cgroup", "9:memory:/docker/0123\n4:cpu,cpuacct:/docker/0123\n0::/\n");
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "4294967296\n");
  EXPECT_EQ(MemoryLimit(root_), size_t{4294967296}) << "the path may be that of outside";
  Write("proc/self/cgroup", "4:cpu,cpuacct:/\n");
  EXPECT_EQ(MemoryLimit(root_), std::nullopt);
}

TEST_F(MemoryLimitTest, NonsenseLimitsNothing) {
  Write("proc/self/cgroup", "0::/\n");
  for (const char* text : {"", "\n", "0\n", "-1\n", "1e9\n", "5 MB\n", "99999999999999999999\n"}) {
    Write("sys/fs/cgroup/memory.max", text);
    EXPECT_EQ(MemoryLimit(root_), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace qtts
