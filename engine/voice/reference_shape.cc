// SPDX-License-Identifier: LGPL-2.1-or-later
#include "voice/reference_shape.h"

#include <algorithm>
#include <cmath>

#include "voice/reference.h"

namespace qtts {
namespace {

// Digital silence. It tells nothing about the noise of the place.
constexpr double kNoSound = -90;
constexpr double kLevelFloor = -120;
// Sound is at most so much below speech, and so much above the noise.
constexpr double kSoundRange = 30;
constexpr double kTailRange = 25;
constexpr double kAboveNoise = 8;
constexpr size_t kTailSamples = size_t{kReferenceRate} * 60 / 1000;
constexpr size_t kBurst = 3;      // levels of the shortest sound
constexpr size_t kMaxPause = 30;  // levels of a pause that belongs to the speech

double LevelOf(std::span<const float> pcm) {
  double squares = 0;
  for (const float sample : pcm) squares += static_cast<double>(sample) * static_cast<double>(sample);
  const double mean = squares / static_cast<double>(std::max<size_t>(pcm.size(), 1));
  return std::max(10 * std::log10(mean + 1e-30), kLevelFloor);
}

// Returns the quantile of `sorted`, which is not empty.
double Quantile(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
}

// Finds the levels of the first and behind the last sound; both 0 if there is none.
void FindSound(ReferenceShape* shape, size_t samples) {
  const std::vector<double>& levels = shape->levels;
  size_t run = 0;
  size_t pause = 0;
  size_t spoken = 0;
  size_t first = levels.size();
  size_t last = 0;
  for (size_t i = 0; i < levels.size(); ++i) {
    run = levels[i] > shape->threshold ? run + 1 : 0;
    if (run < kBurst) {
      ++pause;
      continue;
    }
    if (first == levels.size()) {
      first = i + 1 - kBurst;
      spoken = kBurst;
    } else {
      // A sound before its third level counts as a pause; it is short enough to be one that is spoken.
      spoken += pause <= kMaxPause + kBurst ? pause + 1 : kBurst;
    }
    pause = 0;
    last = i + 1;
  }
  if (last == 0) return;
  shape->begin = first * kLevelSamples;
  shape->end = last == levels.size() ? samples : last * kLevelSamples;
  shape->spoken = static_cast<double>(spoken * kLevelSamples) / kReferenceRate;
}

}  // namespace

ReferenceShape MeasureShape(std::span<const float> pcm) {
  ReferenceShape shape;
  for (size_t at = 0; at + kLevelSamples <= pcm.size(); at += kLevelSamples) {
    shape.levels.push_back(LevelOf(pcm.subspan(at, kLevelSamples)));
  }
  std::vector<double> sorted;
  std::ranges::copy_if(shape.levels, std::back_inserter(sorted), [](double level) { return level > kNoSound; });
  if (sorted.empty()) sorted = shape.levels;
  if (sorted.empty()) return shape;
  std::ranges::sort(sorted);
  shape.speech = Quantile(sorted, 0.85);
  shape.noise = Quantile(sorted, 0.05);
  const double above_noise = shape.noise + std::min(kAboveNoise, shape.snr() / 2);
  shape.threshold = std::max(shape.speech - kSoundRange, above_noise);
  shape.tail_limit = std::max(shape.speech - kTailRange, above_noise);
  shape.tail = LevelOf(pcm.last(std::min(pcm.size(), kTailSamples)));
  FindSound(&shape, pcm.size());
  return shape;
}

}  // namespace qtts
