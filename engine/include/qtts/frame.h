// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_FRAME_H_
#define QTTS_FRAME_H_

#include <cstdint>
#include <vector>

#include "qtts/end_reason.h"

// Output of a Stream.
namespace qtts {

// One decoded frame: 80 ms of speech.
struct Frame {
  int64_t index = 0;           // 0, 1, … within the utterance
  std::vector<int32_t> codes;  // [code_groups]
  std::vector<float> pcm;      // [samples_per_frame], mono, in [-1, 1]
};

enum class ReadState {
  kFrame,    // a frame was handed out
  kPending,  // no frame yet; the utterance goes on
  kEnd,      // no more frames: see Stream::end_reason() and status()
};

}  // namespace qtts

#endif  // QTTS_FRAME_H_
