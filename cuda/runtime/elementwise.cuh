// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_ELEMENTWISE_CUH_
#define QTTS_CUDA_RUNTIME_ELEMENTWISE_CUH_

#include <cstdint>

#include "runtime/launch.h"

// Grids of one thread for each element.
namespace qtts::cuda {

inline constexpr int kElementThreads = 256;

template <typename... Parameters, typename... Arguments>
cudaError_t LaunchElements(void (*kernel)(Parameters...), int64_t elements, cudaStream_t stream,
                           const Arguments&... arguments) {
  const dim3 grid(static_cast<unsigned>((elements + kElementThreads - 1) / kElementThreads));
  return LaunchKernel(kernel, grid, kElementThreads, 0, stream, {}, arguments...);
}

// Returns this thread's element; the last block's may lie beyond the end.
__device__ __forceinline__ int64_t ElementIndex() {
  return static_cast<int64_t>(blockIdx.x) * kElementThreads + threadIdx.x;
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_ELEMENTWISE_CUH_
