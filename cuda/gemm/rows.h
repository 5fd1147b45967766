// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_GEMM_ROWS_H_
#define QTTS_CUDA_GEMM_ROWS_H_

#include "gemm/arguments.h"

namespace qtts::cuda::gemm {

// Order of BF16 rows in scratch memory.
enum class RowOrder {
  kPlain,     // [rows][whole chunks of columns]
  kSwizzled,  // swizzled.h
};

// Writes x * norm in BF16, and the factor that the norm still lacks, to `normed`; for the norm kinds. One kernel;
// nothing where `live` is 0. The squares are summed in the order of the products that norm their rows by themselves.
void NormRows(const Launcher& launch, const GemmArguments& arguments, const NormedRows& normed, RowOrder order);

// Swizzles x, which is BF16, to normed.x (the order kSwizzled); for the other kinds. One kernel.
void ArrangeRows(const Launcher& launch, const GemmArguments& arguments, const NormedRows& normed);

}  // namespace qtts::cuda::gemm

#endif  // QTTS_CUDA_GEMM_ROWS_H_
