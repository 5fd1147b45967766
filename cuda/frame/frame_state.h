// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_FRAME_FRAME_STATE_H_
#define QTTS_CUDA_FRAME_FRAME_STATE_H_

#include <cstdint>

#include "backend/model_part.h"
#include "backend/text_scores.h"
#include "qtts/end_reason.h"
#include "rules/sampling_rules.h"

// State of utterances on the device, and the data exchanged between host and device per frame.
namespace qtts::cuda {

// Rows of a frame with up to so many slots, and of one piece of a prompt.
inline constexpr int kMaxRows = 64;
// Rows of a frame with any number of slots.
inline constexpr int kMostRows = 2048;
// Maximum codes per frame.
inline constexpr int kMaxGroups = 64;
// Ring entries with up to kMaxRows rows: frames in flight, plus space to read results while the next frames are
// computed. With more rows there are fewer, since all of this memory is page-locked. Powers of two: the device's number
// of a frame wraps around.
inline constexpr int kRing = 32;
inline constexpr int kManyRowsRing = 8;

// Size of the rings through which host and device exchange frames, [entries][rows]. Frame n uses entry n % entries.
struct FrameRing {
  int entries = kRing;
  int rows = kMaxRows;
};

// One utterance.
struct SlotState {
  uint64_t seed;
  int64_t max_new_tokens;
  SamplingRules talker;
  SamplingRules predictor;
  HistoryRules history_rules;
  int position;  // of the next talker input
  int chosen;    // ids of codebook 0 chosen so far, the end included
  EndReason end;
  ModelPart fault;        // for kError: the part that gave no usable number
  int codes[kMaxGroups];  // of the last frame
};

enum class RowKind : int {
  kIdle,   // fills the frame up
  kFirst,  // an utterance's first frame, which begins with what its prompt left
  kJoins,  // the same among rows that begin with an input: idle until JoinRows(), behind the talker's layers
  kNext,   // a later frame, whose input is the last codes and a text id
};

// Host to device: one row of a frame.
struct FrameRow {
  RowKind kind = RowKind::kIdle;
  int slot = -1;
  int text_id = 0;  // of kNext
  TextWindow window = {};
};

// TextScores of a row.
struct RowTextScores {
  int count;  // 0: there are none, and nothing else is set
  float log_sum, mass;
  float scores[kTextScores];
};

// Device to host: the result of one row. PCM is stored elsewhere.
struct FrameRowResult {
  EndReason end;
  ModelPart fault;  // for kError: the part that gave no usable number
  int codes[kMaxGroups];
  RowTextScores text;  // if a frame was made, scores were wanted and the model has an alignment head
};

// One row of a prompt, as uploaded.
struct PromptRowIds {
  int slot;
  int position;
  int last;      // of its prompt: what the first frame begins with
  int text_id;   // below 0: none
  int x_vector;  // which of the external vectors is added; below 0: none
  int num_codes;
  int codes[kMaxGroups];
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_FRAME_FRAME_STATE_H_
