// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RULES_CHUNK_H_
#define QTTS_CUDA_RULES_CHUNK_H_

namespace qtts::cuda {

// Rows of activations are padded with zeros to whole chunks of columns.
inline constexpr int kChunk = 32;
constexpr int Padded(int columns) { return (columns + kChunk - 1) / kChunk * kChunk; }

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RULES_CHUNK_H_
