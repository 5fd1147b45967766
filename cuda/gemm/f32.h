// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_GEMM_F32_H_
#define QTTS_CUDA_GEMM_F32_H_

#include "gemm/arguments.h"

namespace qtts::cuda::gemm {

// Runs an F32 product on the CUDA cores, for comparisons with the CPU: any number of rows, 8 at a time.
void RunF32(const Launcher& launch, GemmKind kind, int tiles, const GemmArguments& arguments);

}  // namespace qtts::cuda::gemm

#endif  // QTTS_CUDA_GEMM_F32_H_
