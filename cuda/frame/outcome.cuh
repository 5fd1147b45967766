// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_FRAME_OUTCOME_CUH_
#define QTTS_CUDA_FRAME_OUTCOME_CUH_

#include <cstdint>

#include "frame/frame.h"
#include "frame/frame_state.h"

// Effects of a sampled id: whether the utterance continues, and the recorded state.
namespace qtts::cuda {

// Returns the end, if any, of an utterance whose talker gave `id` (below 0: nothing) after `sampled` ids.
__device__ __forceinline__ EndReason EndAfter(int id, int eos_id, int sampled, int64_t max_new_tokens) {
  if (id < 0) return EndReason::kError;
  if (id == eos_id) return EndReason::kComplete;
  return sampled + 1 >= max_new_tokens ? EndReason::kMaxDuration : EndReason::kNone;
}

// Notes that; by one thread.
__device__ __forceinline__ void TakeTalkerId(int id, EndReason end, int row, int groups, const FrameRows& frame,
                                             unsigned* history, SlotState* state) {
  state->chosen += 1;
  state->end = end;
  if (id < 0) {
    state->fault = ModelPart::kTalker;
  } else {
    history[id / 32] |= 1U << (id % 32);
  }
  if (end == EndReason::kNone) {
    state->codes[0] = id;
    frame.codes[row * groups] = id;
    atomicOr(frame.live + 1, 1);
  } else {
    frame.slots[row] = -1;
  }
}

// Notes the predictor's code of `group`; by one thread. Where there is none the row's other codes mean nothing.
__device__ __forceinline__ void TakePredictorId(int id, int group, int row, int groups, const FrameRows& frame,
                                                SlotState* state) {
  if (id < 0) {
    state->end = EndReason::kError;
    state->fault = ModelPart::kPredictor;
    frame.slots[row] = -1;
    return;
  }
  state->codes[group] = id;
  frame.codes[row * groups + group] = id;
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_FRAME_OUTCOME_CUH_
