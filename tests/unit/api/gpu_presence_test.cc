// SPDX-License-Identifier: LGPL-2.1-or-later
#include "api/gpu_presence.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace qtts {
namespace {

class GpuPresenceTest : public ::testing::Test {
 protected:
  GpuPresenceTest() : root_(::testing::TempDir() + "qtts-presence-" + std::to_string(::getpid())) {
    std::filesystem::create_directories(root_);
  }
  ~GpuPresenceTest() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  const std::string root_;
};

TEST_F(GpuPresenceTest, AnNvidiaDisplayControllerIsOne) {
  EXPECT_FALSE(HasNvidiaGpu(root_));
  Write("sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086\n");
  Write("sys/bus/pci/devices/0000:00:02.0/class", "0x030000\n");
  // The sound of a card.
  Write("sys/bus/pci/devices/0000:01:00.1/vendor", "0x10de\n");
  Write("sys/bus/pci/devices/0000:01:00.1/class", "0x040300\n");
  Write("sys/bus/pci/devices/0000:02:00.0/odd", "");
  EXPECT_FALSE(HasNvidiaGpu(root_));
  Write("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
  Write("sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n");
  EXPECT_TRUE(HasNvidiaGpu(root_));
}

TEST_F(GpuPresenceTest, TheDriverAndOtherSystemsSaySoElsewhere) {
  Write("dev/dxg", "");
  EXPECT_FALSE(HasNvidiaGpu(root_)) << "another card under Windows";
  for (const char* const sign :
       {"usr/lib/wsl/lib/libcuda.so.1", "dev/nvhost-gpu", "dev/nvgpu", "proc/driver/nvidia/gpus/0000:01:00.0/info"}) {
    const std::filesystem::path file = root_ + "/" + sign;
    Write(sign, "");
    EXPECT_TRUE(HasNvidiaGpu(root_)) << sign;
    std::filesystem::remove_all(std::string(sign).starts_with("proc") ? root_ + "/proc" : file.string());
    EXPECT_FALSE(HasNvidiaGpu(root_)) << sign;
  }
}

}  // namespace
}  // namespace qtts
