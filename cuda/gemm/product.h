// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_GEMM_PRODUCT_H_
#define QTTS_CUDA_GEMM_PRODUCT_H_

#include "gemm/gemm.h"

namespace qtts::cuda::gemm {

// One way to compute a product in BF16. All ways have this face: which products they cover, and how they are enqueued
// with operands and epilogue. A new one is a row of the table in gemm.cc.
struct Product {
  GemmShape shape;
  const char* name;     // of benchmarks' columns and tests
  bool takes_swizzled;  // rows in and out may be swizzled (GemmRows::x_swizzled, y_swizzled)
  // Returns whether it covers these rows of the matrix on the current device: number of rows, order of the operands,
  // kind of the epilogue, scratch memory.
  bool (*covers)(const Matrix& matrix, const GemmRows& rows, const ProductNumbers& numbers);
  // Enqueues norm, product and epilogue.
  void (*run)(const Launcher& launch, const Matrix& matrix, const GemmRows& rows);
};

// Returns the way that a shape other than kBest names.
const Product& ProductOf(GemmShape shape);

}  // namespace qtts::cuda::gemm

#endif  // QTTS_CUDA_GEMM_PRODUCT_H_
