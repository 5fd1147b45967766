// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_GEMM_GEMM_DEVICE_CUH_
#define QTTS_CUDA_GEMM_GEMM_DEVICE_CUH_

#include <cstddef>

#include "gemm/gemm.h"
#include "rules/activation.cuh"
#include "rules/norm.cuh"
#include "rules/product.cuh"
#include "runtime/device_math.cuh"

// What the kernels for few and for many rows share. rules/product.cuh and rules/norm.cuh decide their bits.
namespace qtts::cuda::gemm {

constexpr int kWarps = kShares;  // of a block; each has a share of the columns
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
