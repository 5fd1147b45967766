// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_GEMM_GEMM_DEVICE_CUH_
#define QTTS_CUDA_GEMM_GEMM_DEVICE_CUH_

#include "gemm/arguments.h"
#include "gemm/gemm.h"
#include "rules/activation.cuh"
#include "rules/norm.cuh"
#include "rules/product.cuh"
#include "runtime/device_math.cuh"

// Common code of the kernels for few and for many rows. rules/product.cuh and rules/norm.cuh decide their bits.
namespace qtts::cuda::gemm {

static_assert(kWarps == kShares, "a share of the columns for each warp");

// Returns the value to store for an output from its sum, `value`; kAdd adds it to `previous`.
template <GemmKind kKind, typename Activation>
__device__ __forceinline__ float Finished(const GemmArguments& a, int output, float value, float previous) {
  if (a.bias != nullptr) value = __fadd_rn(value, a.bias[output]);
  if constexpr (kKind == GemmKind::kAdd) return __fadd_rn(previous, value);
  return kKind == GemmKind::kStoreSilu ? Silu<Activation>(value) : value;
}

// Runs the epilogue of one output of one row.
template <GemmKind kKind, typename Activation>
__device__ void Finish(const GemmArguments& a, int64_t row, int output, float value, float previous) {
  if (output >= a.outputs) return;
  const float finished = Finished<kKind, Activation>(a, output, value, previous);
  const int64_t at = row * a.y_stride + output;
  if constexpr (kKind == GemmKind::kNormStore || kKind == GemmKind::kAdd) {
    static_cast<float*>(a.y)[at] = finished;
  } else {
    static_cast<Activation*>(a.y)[at] = FromFloat<Activation>(finished);
  }
}

}  // namespace qtts::cuda::gemm

#endif  // QTTS_CUDA_GEMM_GEMM_DEVICE_CUH_
