// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_VOICE_REFERENCE_SHAPE_H_
#define QTTS_VOICE_REFERENCE_SHAPE_H_

#include <cstddef>
#include <span>
#include <vector>

namespace qtts {

// Samples of one level in ReferenceShape::levels: 10 ms at kReferenceRate.
inline constexpr size_t kLevelSamples = 240;

// Places and levels of the sound in a recording. Levels in dB of full scale, of the root mean square.
struct ReferenceShape {
  std::vector<double> levels;  // of each whole 10 ms
  double speech = 0;           // level that 15 % of the sound exceed
  double noise = 0;            // level that 95 % of the sound exceed: that of the pauses
  double threshold = 0;        // levels above it are sound, those below it a pause
  double tail = 0;             // of the last 60 ms
  double tail_limit = 0;       // a tail above it ends within a sound
  size_t begin = 0;            // samples: those before `begin` and those from `end` on are silence
  size_t end = 0;
  double spoken = 0;  // seconds of sound, pauses up to 0.3 s included

  double snr() const { return speech - noise; }
};

// Measures mono samples at kReferenceRate, at least one level.
ReferenceShape MeasureShape(std::span<const float> pcm);

}  // namespace qtts

#endif  // QTTS_VOICE_REFERENCE_SHAPE_H_
