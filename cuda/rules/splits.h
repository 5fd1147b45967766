// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RULES_SPLITS_H_
#define QTTS_CUDA_RULES_SPLITS_H_

namespace qtts::cuda {

// Attention goes through a context in splits of so many positions, counted from position 0 on, and combines them in
// order (softmax.cuh).
inline constexpr int kSplitPositions = 64;

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RULES_SPLITS_H_
