// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_ATTENTION_MANY_ROWS_H_
#define QTTS_CUDA_ATTENTION_MANY_ROWS_H_

#include <cstdint>

#include "rules/precision.h"
#include "runtime/launch.h"

namespace qtts::cuda::attention {

struct AttendArguments;

// Does what Attend() does for many rows, without scratch memory: there are blocks enough without cutting contexts into
// splits. Bits are those of the kernel with splits: each split's partial result is formed in the same way, and they are
// combined in the same order.
//
// Contexts of any length: a block for each row and key head goes through the splits one after the other. Where all
// contexts fit into a turn of eight warps (16 positions of heads of 128: the code predictor's), a warp for each row and
// key head, which does what eight would; in BF16. The released models' shape has kernels of its own, head_pairs.h.
void AttendManyRows(const Launcher& launch, Precision precision, const AttendArguments& arguments, int64_t rows);

}  // namespace qtts::cuda::attention

#endif  // QTTS_CUDA_ATTENTION_MANY_ROWS_H_
