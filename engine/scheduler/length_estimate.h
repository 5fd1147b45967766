// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_LENGTH_ESTIMATE_H_
#define QTTS_SCHEDULER_LENGTH_ESTIMATE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "scheduler/runaway_guard.h"

namespace qtts {

// How many frames an utterance will have, by the tokens of its text and by the utterances so far: all frames spoken,
// divided by the tokens of the texts that have ended. So those that still speak count too, and when many begin at once,
// the estimate does not come from the shortest of them alone. It decides when an utterance may begin, never what is
// computed. Not thread-safe.
class LengthEstimate {
 public:
  // Utterances that speak have `frames` more.
  void AddFrames(int64_t frames) { frames_ += static_cast<double>(frames); }
  // One with `text_tokens` tokens has ended, for whatever reason.
  void AddEnd(size_t text_tokens) {
    tokens_ += static_cast<double>(std::max<size_t>(text_tokens, 1));
    if (tokens_ < kMemory) return;
    tokens_ /= 2;
    frames_ /= 2;
  }
  // At most what the runaway guard allows.
  int64_t FramesOf(size_t text_tokens) const {
    const double frames = frames_ / tokens_ * static_cast<double>(text_tokens);
    const int64_t most =
        RunawayGuard::kFramesAtLeast + RunawayGuard::kFramesPerToken * static_cast<int64_t>(text_tokens);
    return static_cast<int64_t>(std::min(frames, static_cast<double>(most)));
  }

 private:
  static constexpr double kMemory = 65536;  // tokens, of some 2,000 utterances: then the older ones count half
  // At the beginning: what some 60 utterances would tell that speak half as fast as most do.
  static constexpr double kFirstTokens = 2048;
  static constexpr double kFirstFramesPerToken = 8;

  double frames_ = kFirstFramesPerToken * kFirstTokens;
  double tokens_ = kFirstTokens;
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_LENGTH_ESTIMATE_H_
