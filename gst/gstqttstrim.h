// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_TRIM_H_
#define GST_QTTS_TRIM_H_

#include <cstddef>
#include <vector>

#include "qtts/silence_limiter.h"

namespace gstqtts {

// Cuts the silence off the beginning of an utterance, frame by frame. A voice often begins with a frame
// or two of silence, which delays the first sound.
//
// Samples below kThreshold count as silence. kLead seconds of it stay before the first sound, so that
// no onset is cut. At most kLongest seconds are cut, since a longer silence is taken to be intended. A multiple of
// kUnit is cut: the utterance still fills whole packets, and no encoder keeps the rest of it until the next one.
class LeadingSilenceTrimmer {
 public:
  static constexpr float kThreshold = qtts::kSilencePeak;
  static constexpr double kLead = 0.01;
  static constexpr double kLongest = 1.0;
  static constexpr double kUnit = 0.02;

  explicit LeadingSilenceTrimmer(int rate) : rate_(rate) {}

  // Begins an utterance; `trim`: its leading silence is to be cut.
  void Restart(bool trim) { done_ = !trim, cut_ = 0; }
  // Cuts silence from `pcm`, the next samples; all of them if none is louder. Returns the number of samples
  // cut.
  size_t Trim(std::vector<float>* pcm);

 private:
  int rate_;
  bool done_ = true;
  size_t cut_ = 0;  // samples of this utterance
};

}  // namespace gstqtts

#endif  // GST_QTTS_TRIM_H_
