// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_DEVICE_MATH_CUH_
#define QTTS_CUDA_RUNTIME_DEVICE_MATH_CUH_

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "runtime/instructions.cuh"
#include "runtime/overlap.cuh"
#include "runtime/warp.cuh"

// Common code of all kernels of cuda/: the hand-over between kernels, loads, conversions, the matrix instruction,
// reductions.
//
// Kernels of a frame follow one another on one stream and may overlap by programmatic dependent launch: a kernel starts
// once all blocks of its predecessor have called LetNextStart(), which they do after their own WaitForPrevious().
// Before WaitForPrevious() everything up to the kernel before the previous one is therefore complete: constants and
// older results may be read there, results of the previous kernel only after it, and nothing may be written before it.
// Every block calls both.
namespace qtts::cuda {

// Loads the result of an earlier kernel: past L1, which overlapping kernels do not keep coherent.
__device__ __forceinline__ float LoadL2(const float* p) { return __ldcg(p); }
__device__ __forceinline__ int LoadL2(const int* p) { return __ldcg(p); }
__device__ __forceinline__ uint4 LoadL2(const uint4* p) { return __ldcg(p); }

__device__ __forceinline__ float LowBf16(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float HighBf16(uint32_t pair) { return __uint_as_float(pair & 0xFFFF0000U); }
__device__ __forceinline__ uint32_t PackBf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

__device__ __forceinline__ float ToFloat(float x) { return x; }
__device__ __forceinline__ float ToFloat(__nv_bfloat16 x) { return __bfloat162float(x); }
template <typename T>
__device__ __forceinline__ T FromFloat(float x);
template <>
__device__ __forceinline__ float FromFloat<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __nv_bfloat16 FromFloat<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_DEVICE_MATH_CUH_
