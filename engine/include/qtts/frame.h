// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_FRAME_H_
#define QTTS_FRAME_H_

#include <cstdint>
#include <vector>

#include "qtts/end_reason.h"
#include "qtts/words.h"

// Output of a Stream.
namespace qtts {

// One decoded frame: 80 ms of speech.
struct Frame {
  int64_t index = 0;           // 0, 1, … within the utterance
  std::vector<int32_t> codes;  // [code_groups]
  std::vector<float> pcm;      // [samples_per_frame], mono, in [-1, 1]
  // Words whose start and duration have become known with this frame, in order, each once. They may lie some frames
  // back. Stream::last_words() has those that are known only at the end.
  std::vector<SpokenWord> words;
};

enum class ReadState {
  kFrame,    // a frame was handed out
  kPending,  // no frame yet; the utterance goes on
  kEnd,      // no more frames: see Stream::end_reason() and status()
};

}  // namespace qtts

#endif  // QTTS_FRAME_H_
