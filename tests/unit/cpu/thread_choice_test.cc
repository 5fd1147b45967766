// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/thread_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cpu/processors.h"
#include "cpu/thread_pool.h"
#include "unit/base/root_folder.h"

namespace qtts::cpu {
namespace {

using testing::ElementsAre;

// Runs `test` in a thread with an affinity to the first of this thread's processors.
void OnOneProcessor(const std::function<void()>& test) {
  std::thread([&] {
    cpu_set_t mask;
    ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
    int first = 0;
    while (!CPU_ISSET(first, &mask)) ++first;
    CPU_ZERO(&mask);
    CPU_SET(first, &mask);
    ASSERT_EQ(sched_setaffinity(0, sizeof(mask), &mask), 0);
    test();
  }).join();
}

class ProcessorsTest : public RootFolderTest {};

// Check: 54
TEST_F(ProcessorsTest, TheAffinityMaskCounts) {
  OnOneProcessor([&] {
    EXPECT_EQ(AllowedProcessors(), 1);
    EXPECT_EQ(UsableProcessors(root_).threads, 1);
    EXPECT_EQ(UsableProcessors(root_).cores, 1);
    EXPECT_EQ(InitialThreads(0), 1);
    EXPECT_EQ(ThreadsForArithmetic(0), 1);
    EXPECT_EQ(InitialThreads(3), 3) << "a number that was asked for is kept";
    EXPECT_EQ(ThreadsForArithmetic(3), 3);
  });
}

TEST_F(ProcessorsTest, NothingToReadLimitsNothing) {
  EXPECT_EQ(ProcessorQuota(root_), std::nullopt);
  EXPECT_EQ(UsableProcessors(root_).threads, AllowedProcessors());
  EXPECT_EQ(UsableProcessors(root_).cores, AllowedProcessors());
}

// Check: 54
TEST_F(ProcessorsTest, TheLeastQuotaOfAGroupAndThoseAboveIt) {
  Write("proc/self/cgroup", "0::/user.slice/app.scope\n");
  EXPECT_EQ(ProcessorQuota(root_), std::nullopt);
  Write("sys/fs/cgroup/user.slice/app.scope/cpu.max", "max 100000\n");
  EXPECT_EQ(ProcessorQuota(root_), std::nullopt);
  Write("sys/fs/cgroup/user.slice/cpu.max", "250000 100000\n");
  EXPECT_EQ(ProcessorQuota(root_), 2.5);
  Write("sys/fs/cgroup/user.slice/app.scope/cpu.max", "50000 100000\n");
  EXPECT_EQ(ProcessorQuota(root_), 0.5);
  EXPECT_EQ(UsableProcessors(root_).threads, 1) << "rounded down, but not to none";
}

TEST_F(ProcessorsTest, AContainersPathMayBeOfOutside) {
  Write("sys/fs/cgroup/cpu.max", "150000 100000\n");
  for (const char* line : {"0::/", "0::/docker/0123", "0::/../../system.slice", "0::/..", "0::", "0::/a/../../b"}) {
    Write("proc/self/cgroup", line);
    EXPECT_EQ(ProcessorQuota(root_), 1.5) << line;
  }
}

// Check: 54
TEST_F(ProcessorsTest, QuotasOfVersion1) {
  Write("proc/self/cgroup", "9:memory:/box\n4:cpu,cpuacct:/box\n2:cpuset:/\n0::/\n");
  Write("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "50000\n");
  Write("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(ProcessorQuota(root_), std::nullopt) << "-1 is no limit";
  Write("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "200000\n");
  EXPECT_EQ(ProcessorQuota(root_), 4.0);
  Write("proc/self/cgroup", "4:cpuacct:/box\n");
  EXPECT_EQ(ProcessorQuota(root_), std::nullopt) << "cpuacct limits nothing";
}

// Check: 54
TEST_F(ProcessorsTest, NonsenseLimitsNothing) {
  for (const char* groups : {"", "\n\n", "::", "0", "0::/x", "no colon at all\n\n0::/x\n", "0:cpu:/x"}) {
    Write("proc/self/cgroup", groups);
    EXPECT_EQ(ProcessorQuota(root_), std::nullopt) << groups;
  }
  Write("proc/self/cgroup", "0::/x\n");
  for (const std::string text :
       {"", "\n", "max", "max max\n", "100000", "100000 \n", " 100000\n", "100000 0\n", "0 100000\n", "-5 100000\n",
        "5 -100000\n", "1e5 100000\n", "0x10 16\n", "1 2 3\n", "99999999999999999999 1\n", "a b\n", "10 10x\n"}) {
    Write("sys/fs/cgroup/x/cpu.max", text);
    EXPECT_EQ(ProcessorQuota(root_), std::nullopt) << text;
  }
  Write("sys/fs/cgroup/x/cpu.max", std::string(1000000, '7'));
  EXPECT_EQ(ProcessorQuota(root_), std::nullopt);
  Write("sys/fs/cgroup/x/cpu.max", "9223372036854775807 1\n");
  EXPECT_EQ(UsableProcessors(root_).threads, AllowedProcessors());
}

TEST_F(ProcessorsTest, AFolderInAFilesPlaceLimitsNothing) {
  std::filesystem::create_directories(root_ / "proc/self/cgroup");
  EXPECT_EQ(ProcessorQuota(root_), std::nullopt);
}

TEST_F(ProcessorsTest, ProcessorsOfOneCoreAreCountedOnce) {
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
  const int allowed = AllowedProcessors();
  std::string all;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &mask)) all += (all.empty() ? "" : ",") + std::to_string(i);
  }
  const auto list_for_all = [&](const std::string& list) {
    for (int i = 0; i < CPU_SETSIZE; ++i) {
      if (!CPU_ISSET(i, &mask)) continue;
      Write("sys/devices/system/cpu/cpu" + std::to_string(i) + "/topology/thread_siblings_list", list);
    }
  };
  list_for_all(all + "\n");
  EXPECT_EQ(UsableProcessors(root_).cores, 1);
  EXPECT_EQ(UsableProcessors(root_).threads, allowed);
  list_for_all("0-4095\n");
  EXPECT_EQ(UsableProcessors(root_).cores, 1);
  Write("sys/devices/system/cpu/smt/active", "0\n");
  EXPECT_EQ(UsableProcessors(root_).cores, allowed);
  Write("sys/devices/system/cpu/smt/active", "1\n");
  for (const char* nonsense : {"", "\n", "x", "-", "1-", ",,", "5-1", "99999999999999999999"}) {
    list_for_all(nonsense);
    EXPECT_EQ(UsableProcessors(root_).cores, allowed) << nonsense;
  }
}

TEST(ThreadChoiceTest, CandidatesArePartsOfTheCores) {
  EXPECT_THAT(ThreadCandidates({.threads = 1, .cores = 1}), ElementsAre(1));
  EXPECT_THAT(ThreadCandidates({.threads = 2, .cores = 2}), ElementsAre(2, 1));
  EXPECT_THAT(ThreadCandidates({.threads = 2, .cores = 1}), ElementsAre(2, 1));
  EXPECT_THAT(ThreadCandidates({.threads = 12, .cores = 6}), ElementsAre(12, 6, 4, 3, 2, 1));
  EXPECT_THAT(ThreadCandidates({.threads = 16, .cores = 16}), ElementsAre(16, 12, 8, 6, 4, 3, 2, 1));
  EXPECT_THAT(ThreadCandidates({.threads = 256, .cores = 128}), ElementsAre(64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1));
}

// The choice, and the number of measurements, if the measurement of n threads returns times[n].
std::pair<int, int> Choose(const Processors& usable, const std::map<int, std::optional<double>>& times) {
  int measured = 0;
  const int chosen = ChooseThreads(usable, [&](int threads) {
    ++measured;
    return times.at(threads);
  });
  return {chosen, measured};
}

// Check: 54
TEST(ThreadChoiceTest, TheFewestThatAreAsFast) {
  const Processors eight{.threads = 16, .cores = 8};
  // 4 threads reach the bandwidth of the memory.
  EXPECT_EQ(Choose(eight, {{16, 10.2}, {8, 10}, {6, 10}, {4, 10.4}, {3, 12}, {2, 16}}), std::pair(4, 6));
  EXPECT_EQ(Choose(eight, {{16, 12}, {8, 10}, {6, 11}, {4, 16}}), std::pair(8, 4));
  EXPECT_EQ(Choose(eight, {{16, 10}, {8, 12}, {6, 16}}), std::pair(16, 3)) << "a core's second thread helps";
  EXPECT_EQ(Choose({.threads = 2, .cores = 2}, {{2, 10}, {1, 10.5}}), std::pair(1, 2));
  EXPECT_EQ(Choose({.threads = 2, .cores = 2}, {{2, 10}, {1, 10.6}}), std::pair(2, 2));
}

// Check: 54
TEST(ThreadChoiceTest, WhereOtherWorkDisturbsItIsOneACore) {
  const Processors eight{.threads = 16, .cores = 8};
  EXPECT_EQ(Choose(eight, {{16, std::nullopt}, {8, std::nullopt}}), std::pair(8, 2));
  EXPECT_EQ(Choose(eight, {{16, 10}, {8, std::nullopt}}), std::pair(8, 2));
  EXPECT_EQ(Choose(eight, {{16, std::nullopt}, {8, 10}, {6, 10}, {4, std::nullopt}, {3, 20}}), std::pair(6, 5));
}

// Check: 54
TEST(ThreadChoiceTest, ItIsMeasuredWhatThisMachineDoes) {
  ThreadPool pool(4);
  ResizeToBest(
      {.weight_bytes = 8'000'000, .distinct_bytes = 1'000'000, .matrix_bytes = 100'000, .multiply_adds = 10'000'000},
      &pool);
  EXPECT_GE(pool.threads(), 1);
  EXPECT_LE(pool.threads(), std::min(4, UsableProcessors().threads));
  OnOneProcessor([&] {
    ResizeToBest({.weight_bytes = 1, .distinct_bytes = 1, .matrix_bytes = 1, .multiply_adds = 1}, &pool);
    EXPECT_EQ(pool.threads(), 1);
  });
}

}  // namespace
}  // namespace qtts::cpu
