// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_ELEMENTWISE_CUH_
#define QTTS_CUDA_RUNTIME_ELEMENTWISE_CUH_

#include <cstdint>

// Grids of one thread for each element.
namespace qtts::cuda {

inline constexpr int kElementThreads = 256;

inline unsigned ElementBlocks(int64_t elements) {
  return static_cast<unsigned>((elements + kElementThreads - 1) / kElementThreads);
}

// This thread's element; the last block's may lie beyond the end.
__device__ __forceinline__ int64_t ElementIndex() {
  return static_cast<int64_t>(blockIdx.x) * kElementThreads + threadIdx.x;
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_ELEMENTWISE_CUH_
