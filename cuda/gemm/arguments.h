// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_GEMM_ARGUMENTS_H_
#define QTTS_CUDA_GEMM_ARGUMENTS_H_

#include <cstdint>

#include "gemm/gemm.h"

// Arguments of a product's kernels, and the size of their thread blocks.
namespace qtts::cuda::gemm {

constexpr int kWarps = 8;  // of a block; each has a share of the columns
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
  bool x_swizzled, y_swizzled;
};

constexpr bool HasNorm(GemmKind kind) { return kind == GemmKind::kNormStore || kind == GemmKind::kNormGated; }

}  // namespace qtts::cuda::gemm

#endif  // QTTS_CUDA_GEMM_ARGUMENTS_H_
