// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_ATTENTION_ATTENTION_H_
#define QTTS_CUDA_ATTENTION_ATTENTION_H_

#include <cstddef>
#include <cstdint>

#include "checkpoint/transformer_config.h"
#include "rules/precision.h"
#include "rules/splits.h"
#include "runtime/launch.h"

namespace qtts::cuda {

// Positions per page, the unit in which KV caches grow.
inline constexpr int kPagePositions = 128;

// Heads have a multiple of 8 elements, this many at most.
inline constexpr int kMaxHeadDim = 256;

// Sequences and positions of the rows of a call. Rows of one sequence are consecutive and in order.
struct SequenceRows {
  // Sequence of row r: slots[r / per_sequence], or r / per_sequence without slots; below 0: no row.
  const int* slots = nullptr;
  // Position of row r: positions[r], or first_position + r % per_sequence without positions.
  const int* positions = nullptr;
  int first_position = 0;
  int per_sequence = 1;
  // The rows' keys and values are already in the cache, by AppendKeyValues().
  bool appended = false;
  int64_t rows = 0;
};

// Pages of all sequences: table[sequence * pages_per_sequence + page] is a page,
// [layer][kv head][keys, values][kPagePositions][head_dim] in the precision's type.
struct KeyValuePages {
  void* const* table = nullptr;
  int pages_per_sequence = 0;
  int page_positions = kPagePositions;
};

struct AttentionLayer {
  int layer = 0;
  const float* q_norm = nullptr;  // [head_dim], or none
  const float* k_norm = nullptr;
  const float* inverse_frequencies = nullptr;  // [head_dim / 2]
};

// Scratch for partial results of split contexts. Owned by the caller, zeroed once.
struct AttentionScratch {
  float* partial = nullptr;
  unsigned* tickets = nullptr;
};
// Returns the number of elements for `rows` rows and `splits` splits.
size_t PartialElements(const TransformerConfig& config, int64_t rows, int splits);
size_t TicketElements(const TransformerConfig& config, int64_t rows);

// Returns the number of splits that cover `positions` keys under the window of `config`.
int SplitsFor(const TransformerConfig& config, int64_t positions);

// Returns false where Attend() of so many rows goes through each row's whole context in one block: then it uses neither
// `splits` nor the scratch memory.
bool NeedsSplits(const AttentionNumbers& numbers, int64_t rows);

// Where the rows' results go: [rows][stride] in the precision's type or, where Attend() needs no splits, in BF16 in the
// order kSwizzled (gemm/swizzled.h).
struct AttendedRows {
  void* data = nullptr;
  int stride = 0;
  bool swizzled = false;
};

// Computes attention. For each row: norm and RoPE of its query and key; its key and value to the cache (unless
// appended); attention over all positions that it sees. qkv F32 [rows][q_width + 2 kv_width]. `splits` must cover the
// longest row. Nothing is done where `live` is 0.
void Attend(const Launcher& launch, Precision precision, const TransformerConfig& config, const AttentionLayer& layer,
            const SequenceRows& rows, const KeyValuePages& pages, const AttentionScratch& scratch, int splits,
            const float* qkv, const AttendedRows& y, const int* live);

// Writes the keys and values of rows that attend to each other into the cache.
void AppendKeyValues(const Launcher& launch, Precision precision, const TransformerConfig& config,
                     const AttentionLayer& layer, const SequenceRows& rows, const KeyValuePages& pages,
                     const float* qkv);

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_ATTENTION_ATTENTION_H_
