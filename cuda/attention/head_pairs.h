// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_ATTENTION_HEAD_PAIRS_H_
#define QTTS_CUDA_ATTENTION_HEAD_PAIRS_H_

#include <cstdint>

#include "rules/precision.h"
#include "runtime/launch.h"

namespace qtts::cuda::attention {

struct AttendArguments;

// Attention of many rows for the shape of all released models: two query heads of 128 elements for each key head, in
// BF16, without a window. A warp for each row and key head, with the bits of the kernels for any shape, in fewer
// instructions than the memory takes time.

// Returns true for contexts of any length in pages of kPagePositions; new rows are alone in their sequence.
bool CanAttendPairContexts(Precision precision, const AttendArguments& arguments);
void AttendPairContexts(const Launcher& launch, const AttendArguments& arguments, int64_t rows);

// Returns true for contexts of a turn of eight warps at most, 16 positions, in one page: the code predictor's.
bool CanAttendPairTurns(Precision precision, const AttendArguments& arguments);
void AttendPairTurns(const Launcher& launch, const AttendArguments& arguments, int64_t rows);

}  // namespace qtts::cuda::attention

#endif  // QTTS_CUDA_ATTENTION_HEAD_PAIRS_H_
