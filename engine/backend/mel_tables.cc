// SPDX-License-Identifier: LGPL-2.1-or-later
#include "backend/mel_tables.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace qtts {
namespace {

constexpr double kSampleRate = 24000;
constexpr double kHighest = 12000;  // Hz

// Slaney's scale: linear up to 1 kHz, then logarithmic.
constexpr double kBreak = 1000;
constexpr double kMelsPerHz = 3.0 / 200;
constexpr double kBreakMel = kBreak * kMelsPerHz;

double MelStep() { return std::log(6.4) / 27; }
double MelOf(double hz) { return hz < kBreak ? hz * kMelsPerHz : kBreakMel + std::log(hz / kBreak) / MelStep(); }
double HzOf(double mel) {
  return mel < kBreakMel ? mel / kMelsPerHz : kBreak * std::exp((mel - kBreakMel) * MelStep());
}

}  // namespace

MelTables::MelTables(int64_t bins) {
  for (int64_t n = 0; n < kLength; ++n) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(n) / kLength;
    window.push_back(static_cast<float>(0.5 - 0.5 * std::cos(angle)));
    if (n < kLength / 2) roots.emplace_back(std::cos(angle), -std::sin(angle));
  }
  const auto edge = [&](int64_t i) {
    return HzOf(MelOf(kHighest) * static_cast<double>(i) / static_cast<double>(bins + 1));
  };
  for (int64_t b = 0; b < bins; ++b) {
    const double low = edge(b);
    const double middle = edge(b + 1);
    const double high = edge(b + 2);
    Band band;
    for (int64_t f = 0; f < kFrequencies; ++f) {
      const double hz = static_cast<double>(f) * kSampleRate / kLength;
      const double height = std::min((hz - low) / (middle - low), (high - hz) / (high - middle));
      if (height <= 0) continue;
      if (band.weights.empty()) band.first = f;
      band.weights.push_back(static_cast<float>(height * 2 / (high - low)));
    }
    bands.push_back(std::move(band));
  }
}

int64_t MelTables::Frames(int64_t samples) { return (samples + 2 * kPadding - kLength) / kHop + 1; }

int64_t MelTables::Samples(int64_t frames) {
  return std::max(kLeastSamples, (frames - 1) * kHop + kLength - 2 * kPadding);
}

}  // namespace qtts
