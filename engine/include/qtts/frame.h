// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_FRAME_H_
#define QTTS_FRAME_H_

#include <cstdint>
#include <vector>

// What comes out of a Stream.
namespace qtts {

// One decoded frame: 80 ms of speech.
struct Frame {
  int64_t index = 0;           // 0, 1, … within the utterance
  std::vector<int32_t> codes;  // [code_groups]
  std::vector<float> pcm;      // [samples_per_frame], mono, in [-1, 1]
};

enum class ReadState {
  kFrame,    // a frame was handed out
  kPending,  // none yet, the utterance goes on
  kEnd,      // no more frames: see Stream::end_reason() and status()
};

enum class EndReason {
  kNone,         // still running
  kComplete,     // the model ended the utterance
  kMaxDuration,  // max_new_tokens struck first
  kRunaway,      // Request::runaway_guard struck
  kBusy,         // Request::max_wait ran out before its turn came
  kCancelled,    // Cancel(), or the engine went away
  kError,        // see Stream::status()
};

}  // namespace qtts

#endif  // QTTS_FRAME_H_
