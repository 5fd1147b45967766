// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_LENGTH_ESTIMATE_H_
#define QTTS_SCHEDULER_LENGTH_ESTIMATE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "scheduler/runaway_guard.h"

namespace qtts {

// Estimates the frames of an utterance from the tokens of its text: times all frames spoken so far, divided by the
// tokens of all texts that have ended. Utterances that still speak count too, because of many that begin at once the
// shortest end first. Decides when an utterance may begin, never what is computed. Not thread-safe.
class LengthEstimate {
 public:
  // Counts `frames` more that were spoken, by any utterances.
  void AddFrames(int64_t frames) { frames_ += static_cast<double>(frames); }
  // Counts an utterance with `text_tokens` tokens that has ended, for whatever reason.
  void AddEnd(size_t text_tokens) {
    tokens_ += static_cast<double>(std::max<size_t>(text_tokens, 1));
    if (tokens_ < kMemory) return;
    tokens_ /= 2;
    frames_ /= 2;
  }
  // Returns the estimate for a text, at most what the runaway guard allows.
  int64_t FramesOf(size_t text_tokens) const {
    const double frames = frames_ / tokens_ * static_cast<double>(text_tokens);
    return static_cast<int64_t>(std::min(frames, static_cast<double>(RunawayGuard::MostFrames(text_tokens))));
  }

 private:
  // Tokens of some 2,000 utterances. Beyond that, older ones count half.
  static constexpr double kMemory = 65536;
  // The first estimate: that of some 60 utterances at half the usual rate of speech.
  static constexpr double kFirstTokens = 2048;
  static constexpr double kFirstFramesPerToken = 8;

  double frames_ = kFirstFramesPerToken * kFirstTokens;
  double tokens_ = kFirstTokens;
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_LENGTH_ESTIMATE_H_
