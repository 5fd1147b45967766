// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_ATTENTION_TEXT_SCORES_H_
#define QTTS_CUDA_ATTENTION_TEXT_SCORES_H_

#include "attention/attention.h"
#include "checkpoint/transformer_config.h"
#include "frame/frame.h"
#include "frame/frame_state.h"
#include "rules/precision.h"
#include "runtime/launch.h"

// Scores of the alignment head against the text, for the rows that choose a frame.
//
// In two steps, so that all paths give the same bits. The layer's query is kept by slot: by KeepQueries(), or by the
// persistent kernel while it places it. At the frame's end one kernel, the same for all paths, multiplies it by the
// keys in the cache, a block a row. A row's result depends on its own query, keys, position and window alone.
namespace qtts::cuda {

// The alignment head, and the queries of all slots.
struct AlignedQueries {
  int layer = -1;  // below 0: the model has no such head
  int head = 0;
  float* queries = nullptr;  // [slots][head_dim], after norm and RoPE
};

// Keeps the head's query of each row: row r's slot is rows.slots[r], below 0: none. qkv F32
// [rows][q_width + 2 kv_width], of the head's layer.
void KeepQueries(const Launcher& launch, const TransformerConfig& config, const AttentionLayer& layer,
                 const AlignedQueries& aligned, const SequenceRows& rows, const float* qkv);

// Writes the scores of the frame's rows whose windows ask for some, to its entry of the ring `results` (host memory).
// Keys of all rows are in the cache.
void ScoreText(const Launcher& launch, Precision precision, const TransformerConfig& config,
               const AlignedQueries& aligned, const FrameRows& frame, const KeyValuePages& pages, const FrameRing& ring,
               int rows, FrameRowResult* results);

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_ATTENTION_TEXT_SCORES_H_
