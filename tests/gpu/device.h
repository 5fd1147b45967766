// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_GPU_DEVICE_H_
#define QTTS_TESTS_GPU_DEVICE_H_

#include <gtest/gtest.h>

#include <string>

#include "paths/persistent/persistent_frame.h"
#include "runtime/device.h"

// The GPU that tests run on, or the card that it pretends to be. A test of what this card lacks is skipped, with the
// reason.
namespace qtts::testing {

inline cuda::DeviceDescription Device() {
  const cuda::DeviceDescription* device = nullptr;
  const cudaError_t error = cuda::DescribeDevice(&device);
  EXPECT_EQ(error, cudaSuccess) << cudaGetErrorString(error);
  return error == cudaSuccess ? *device : cuda::DeviceDescription();
}

#define QTTS_NEEDS_PERSISTENT_KERNEL()                                                                   \
  if (const Status needed = cuda::PersistentFrame::CheckDevice(::qtts::testing::Device()); !needed.ok()) \
  GTEST_SKIP() << needed.message()

#define QTTS_NEEDS_WARPGROUPS()                                                                         \
  if (!::qtts::testing::Device().CanRunWarpgroups())                                                    \
  GTEST_SKIP() << "compute capability " << ::qtts::testing::Device().capability_text() << ", code for " \
               << ::qtts::testing::Device().code << ": no matrix instruction of warpgroups"

}  // namespace qtts::testing

#endif  // QTTS_TESTS_GPU_DEVICE_H_
