// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_WARP_CUH_
#define QTTS_CUDA_RUNTIME_WARP_CUH_

// Reductions over a whole warp, always in the same order; every lane has the result.
namespace qtts::cuda {

__device__ __forceinline__ float WarpSum(float v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(~0U, v, offset);
  return v;
}

__device__ __forceinline__ float WarpMax(float v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v = fmaxf(v, __shfl_xor_sync(~0U, v, offset));
  return v;
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_WARP_CUH_
