// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_GEMM_GEMM_DEVICE_CUH_
#define QTTS_CUDA_GEMM_GEMM_DEVICE_CUH_

#include <cstddef>

#include "gemm/gemm.h"
#include "runtime/device_math.cuh"

// What the kernels for few and for many rows share: above all the order of additions, spelled out with
// intrinsics wherever a compiler could contract it in one kernel and not in another.
namespace qtts::cuda::gemm {

constexpr int kWarps = 8;  // of a block; each has an eighth of the chunks of columns
constexpr int kThreads = 32 * kWarps;
constexpr int kTileRows = 8;  // activations in one matrix instruction

struct GemmArguments {
  const void* weights;
  const float* bias;
  int outputs, columns, chunks;
  const void* x;
  int x_stride;
  void* y;
  int y_stride;
  int64_t rows;
  const float* norm;
  float eps;
  const int* live;
  const float* factors;  // of normed rows
};

constexpr bool HasNorm(GemmKind kind) { return kind == GemmKind::kNormStore || kind == GemmKind::kNormGated; }

__device__ __forceinline__ float SumOfSquares(float x0, float x1, float x2, float x3) {
  return __fadd_rn(__fmaf_rn(x1, x1, __fmul_rn(x0, x0)), __fmaf_rn(x3, x3, __fmul_rn(x2, x2)));
}

// A warp's sum of the squares of its eighth of x [columns], with zeros up to whole chunks.
__device__ __forceinline__ float WarpSquares(const float* x, int columns, int warp, int lane) {
  const int chunks = (columns + kChunk - 1) / kChunk;
  const int per_warp = (chunks + kWarps - 1) / kWarps;
  const int begin = warp * per_warp;
  const int share = max(0, min(chunks - begin, per_warp)) * kChunk;
  float square = 0;
  for (int c = lane * 4; c - lane * 4 < share; c += 128) {
    float product = 0;
    if (c < share) {
      const float4 v = __ldcg(reinterpret_cast<const float4*>(x + begin * kChunk + c));
      product = SumOfSquares(v.x, v.y, v.z, v.w);
    }
    square = __fadd_rn(square, WarpSum(product));
  }
  return square;
}

// 1 / rms of a row from its warps' sums of squares, which lie `stride` apart.
__device__ __forceinline__ float NormFactor(const float* squares, int stride, int columns, float eps) {
  float total = 0;
#pragma unroll
  for (int s = 0; s < kWarps; ++s) total = __fadd_rn(total, squares[s * stride]);
  return rsqrtf(total / static_cast<float>(columns) + eps);
}

// One output from its warps' sums, which lie `stride` apart.
__device__ __forceinline__ float Total(const float* partial, int stride, float factor) {
  float sum = 0;
#pragma unroll
  for (int s = 0; s < kWarps; ++s) sum = __fadd_rn(sum, partial[s * stride]);
  return __fmul_rn(sum, factor);
}

// What becomes of one output of one row.
template <GemmKind kKind, typename Activation>
__device__ void Finish(const GemmArguments& a, int64_t row, int output, float value, float previous) {
  if (output >= a.outputs) return;
  if (a.bias != nullptr) value = __fadd_rn(value, a.bias[output]);
  const int64_t at = row * a.y_stride + output;
  if constexpr (kKind == GemmKind::kNormStore) {
    static_cast<float*>(a.y)[at] = value;
  } else if constexpr (kKind == GemmKind::kAdd) {
    static_cast<float*>(a.y)[at] = __fadd_rn(previous, value);
  } else {
    static_cast<Activation*>(a.y)[at] =
        FromFloat<Activation>(kKind == GemmKind::kStoreSilu ? Silu<Activation>(value) : value);
  }
}

}  // namespace qtts::cuda::gemm

#endif  // QTTS_CUDA_GEMM_GEMM_DEVICE_CUH_
