// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_RUNAWAY_GUARD_H_
#define QTTS_SCHEDULER_RUNAWAY_GUARD_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace qtts {

// Detects that a model has missed the end of its utterance, as happens for a few in a thousand (spec 11.13): it then
// stays silent, or makes sound for longer than the text could last. Works on frames of 80 ms. One per utterance. Not
// thread-safe.
class RunawayGuard {
 public:
  // Five seconds below -60 dB: longer than any pause of speech.
  static constexpr int64_t kSilentFrames = 63;
  // Ten seconds, and about one for each token of the text: twice as slow as the slowest speech that was measured.
  static constexpr int64_t kFramesAtLeast = 125;
  static constexpr int64_t kFramesPerToken = 12;

  static constexpr int64_t MostFrames(size_t text_tokens, int64_t frames_per_token = kFramesPerToken) {
    return kFramesAtLeast + frames_per_token * static_cast<int64_t>(text_tokens);
  }

  // Processes the next frame of an utterance with `text_tokens` tokens of text so far. Returns true if the utterance
  // should end.
  bool Trips(std::span<const float> pcm, size_t text_tokens, int64_t frames_per_token = kFramesPerToken);

 private:
  int64_t frames_ = 0;
  int64_t silent_ = 0;  // silent frames at the end
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_RUNAWAY_GUARD_H_
