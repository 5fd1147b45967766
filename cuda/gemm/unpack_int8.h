// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_GEMM_UNPACK_INT8_H_
#define QTTS_CUDA_GEMM_UNPACK_INT8_H_

#include "gemm/gemm.h"

namespace qtts::cuda::gemm {

// Brings the values of a matrix of 8-bit weights to its `unpacked`, packed as a BF16 matrix. Does nothing where the
// device word `live` is 0; none: always done.
//
// The kernel after it must not overlap it, since kernels load weights before they wait.
void UnpackInt8(const Launcher& launch, const Matrix& matrix, const int* live);

}  // namespace qtts::cuda::gemm

#endif  // QTTS_CUDA_GEMM_UNPACK_INT8_H_
