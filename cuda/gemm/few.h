// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_GEMM_FEW_H_
#define QTTS_CUDA_GEMM_FEW_H_

#include <cstddef>
#include <cstdint>

#include "gemm/arguments.h"

namespace qtts::cuda::gemm {

// Returns the shared memory of a thread block for up to 8 rows.
size_t FewStageBytes(int chunks, int64_t rows);

// Runs a product in BF16 for few rows, the fastest for one stream. A block has the outputs of one tile, so that all SMs
// share the weights; it prefetches its first weights before the previous kernel has ended.
void RunFew(const Launcher& launch, GemmKind kind, int tiles, const GemmArguments& arguments);
// Enqueues the same with weights of 8 bits (int8.h), which are unpacked in registers.
void RunFewInt8(const Launcher& launch, GemmKind kind, int tiles, const GemmArguments& arguments);

}  // namespace qtts::cuda::gemm

#endif  // QTTS_CUDA_GEMM_FEW_H_
