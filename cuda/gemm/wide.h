// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_GEMM_WIDE_H_
#define QTTS_CUDA_GEMM_WIDE_H_

#include "gemm/arguments.h"

namespace qtts::cuda::gemm {

// Outputs per thread block of RunWide().
constexpr int kWideOutputs = 32;

// Runs a product in BF16 for many rows: a block reads its weights once for `rows_of_block` (16, 32 or 64) rows. Each
// row gets the bits that the kernels for few rows would give it. For the norm kinds all rows are normed first, into
// `normed`.
void RunWide(const Launcher& launch, GemmKind kind, GemmArguments arguments, int rows_of_block,
             const NormedRows& normed);

}  // namespace qtts::cuda::gemm

#endif  // QTTS_CUDA_GEMM_WIDE_H_
