// SPDX-License-Identifier: LGPL-2.1-or-later
#include "runtime/device_table.h"

#include <cuda_runtime_api.h>

#include <set>
#include <string>

#include "base/log.h"
#include "qtts/mutex.h"
#include "runtime/cuda_error.h"
#include "runtime/device.h"

namespace qtts::cuda {
namespace {

// Returns whether `card` is asked about for the first time.
bool IsNew(const std::string& card) {
  static Mutex mutex;
  static std::set<std::string>* const cards QTTS_PT_GUARDED_BY(mutex) = new std::set<std::string>();
  const MutexLock lock(mutex);
  return cards->insert(card).second;
}

}  // namespace

Result<DeviceNumbers> NumbersOfDevice() {
  const DeviceDescription* device = nullptr;
  QTTS_RETURN_IF_CUDA_ERROR(DescribeDevice(&device), "asking for the device");
  const DeviceNumbers numbers = NumbersOf(device->name.c_str(), device->processors);
  if (!numbers.measured && LogEnabled(LogLevel::kInfo) && IsNew(device->name)) {
    Log(LogLevel::kInfo, "the GPU backend has no measurements of " + device->name +
                             "; it chooses kernels by safe numbers and may be slower than possible");
  }
  return numbers;
}

}  // namespace qtts::cuda
