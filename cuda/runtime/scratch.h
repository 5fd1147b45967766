// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_SCRATCH_H_
#define QTTS_CUDA_RUNTIME_SCRATCH_H_

#include <initializer_list>
#include <utility>
#include <vector>

#include "qtts/status.h"
#include "runtime/device_memory.h"

namespace qtts::cuda {

// Device scratch memory of a network. Arrays are allocated anew for each recording. The memory is kept in between,
// since freeing it would make the whole device wait. Not thread-safe.
class Scratch {
 public:
  // Returns arrays of so many floats, aligned to 256 bytes, until the next call. Nothing enqueued may still use the
  // last ones. kResourceExhausted where there is no room.
  Result<std::vector<float*>> Take(std::initializer_list<int64_t> sizes) {
    constexpr size_t kAlignment = 64;  // floats
    size_t floats = 0;
    std::vector<size_t> begins;
    for (const int64_t size : sizes) {
      begins.push_back(floats);
      floats += (static_cast<size_t>(size) + kAlignment - 1) / kAlignment * kAlignment;
    }
    if (floats * sizeof(float) > memory_.bytes()) {
      memory_ = DeviceMemory();  // first, as both may not fit
      QTTS_ASSIGN_OR_RETURN(memory_, DeviceMemory::Allocate(floats * sizeof(float)));
    }
    std::vector<float*> arrays;
    for (const size_t begin : begins) arrays.push_back(memory_.as<float>() + begin);
    return arrays;
  }

 private:
  DeviceMemory memory_;
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_SCRATCH_H_
