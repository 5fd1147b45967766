// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_ASYNC_COPY_CUH_
#define QTTS_CUDA_RUNTIME_ASYNC_COPY_CUH_

#include <cstdint>
#include <cstring>

#include "cuda_device.h"
#include "runtime/barrier.cuh"
#include "thread_grid.h"

// In place of cuda/runtime/async_copy.cuh: copies are there at once.
namespace qtts::cuda {

inline uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(static_cast<const char*>(p) - emulated::SharedMemory());
}

using CachePolicy = uint64_t;
inline CachePolicy EvictFirst() { return 0; }
inline void CopyAsync16(uint32_t to, const void* from) { std::memcpy(emulated::SharedMemory() + to, from, 16); }
inline void CopyAsync16(uint32_t to, const void* from, CachePolicy /*policy*/) { CopyAsync16(to, from); }
inline void ArriveWithCopies(uint32_t barrier) { ArriveAt(barrier); }
inline void PrefetchL2(const void* /*p*/) {}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_ASYNC_COPY_CUH_
