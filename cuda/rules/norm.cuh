// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RULES_NORM_CUH_
#define QTTS_CUDA_RULES_NORM_CUH_

#include "rules/product.cuh"
#include "runtime/device_math.cuh"

// RMS norm of a product's input in BF16: the input times the norm's weights is what is multiplied, 1 / rms is a factor
// of the outputs. Squares are summed like the product's columns: by shares, of 128 columns at a time, then in order.
namespace qtts::cuda {

__device__ __forceinline__ float SumOfSquares(float x0, float x1, float x2, float x3) {
  return __fadd_rn(__fmaf_rn(x1, x1, __fmul_rn(x0, x0)), __fmaf_rn(x3, x3, __fmul_rn(x2, x2)));
}

// Returns four columns as they are multiplied.
__device__ __forceinline__ uint2 NormedFour(float x0, float x1, float x2, float x3, const float4& norm) {
  return {PackBf16(x0 * norm.x, x1 * norm.y), PackBf16(x2 * norm.z, x3 * norm.w)};
}

// Returns a warp's sum of the squares of its share of x [columns], with zeros up to whole chunks.
__device__ __forceinline__ float WarpSquares(const float* x, int columns, int warp, int lane) {
  const ColumnShare chunks = ShareOfChunks((columns + kChunk - 1) / kChunk, warp);
  const int share = chunks.count * kChunk;
  float square = 0;
  for (int c = lane * 4; c - lane * 4 < share; c += 128) {
    float product = 0;
    if (c < share) {
      const float4 v = __ldcg(reinterpret_cast<const float4*>(x + chunks.begin * kChunk + c));
      product = SumOfSquares(v.x, v.y, v.z, v.w);
    }
    square = __fadd_rn(square, WarpSum(product));
  }
  return square;
}

// Returns 1 / rms of a row from the shares' sums of squares, which lie `stride` apart.
__device__ __forceinline__ float NormFactor(const float* squares, int stride, int columns, float eps) {
  float total = 0;
#pragma unroll
  for (int s = 0; s < kShares; ++s) total = __fadd_rn(total, squares[s * stride]);
  return rsqrtf(total / static_cast<float>(columns) + eps);
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RULES_NORM_CUH_
