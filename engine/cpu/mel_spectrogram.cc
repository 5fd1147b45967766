// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/mel_spectrogram.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <utility>

namespace qtts::cpu {
namespace {

constexpr int64_t kLength = 1024;  // of the window and the transform
constexpr int64_t kHop = 256;
constexpr int64_t kPadding = (kLength - kHop) / 2;
constexpr int64_t kFrequencies = kLength / 2 + 1;
constexpr double kSampleRate = 24000;
constexpr double kHighest = 12000;  // Hz
constexpr double kLeastPower = 1e-9;
constexpr double kLeastMel = 1e-5;

static_assert(MelSpectrogram::kLeastSamples == kPadding + 1);

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

MelSpectrogram::MelSpectrogram(int64_t bins) {
  for (int64_t n = 0; n < kLength; ++n) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(n) / kLength;
    window_.push_back(static_cast<float>(0.5 - 0.5 * std::cos(angle)));
    if (n < kLength / 2) roots_.emplace_back(std::cos(angle), -std::sin(angle));
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
    bands_.push_back(std::move(band));
  }
}

int64_t MelSpectrogram::Frames(int64_t samples) { return (samples + 2 * kPadding - kLength) / kHop + 1; }

void MelSpectrogram::Transform(std::vector<std::complex<double>>* x) const {
  // Cooley and Tukey's, by halves: first into bit-reversed order, then butterflies of growing size.
  std::vector<std::complex<double>>& v = *x;
  for (size_t i = 1, j = 0; i < v.size(); ++i) {
    size_t bit = v.size() / 2;
    for (; (j & bit) != 0; bit /= 2) j ^= bit;
    j |= bit;
    if (i < j) std::swap(v[i], v[j]);
  }
  for (size_t half = 1; half < v.size(); half *= 2) {
    const size_t stride = roots_.size() / half;
    for (size_t begin = 0; begin < v.size(); begin += 2 * half) {
      for (size_t k = 0; k < half; ++k) {
        // Written out: the operator would check for infinities.
        const std::complex<double> r = roots_[k * stride];
        const std::complex<double> b = v[begin + half + k];
        const std::complex<double> turned(r.real() * b.real() - r.imag() * b.imag(),
                                          r.real() * b.imag() + r.imag() * b.real());
        v[begin + half + k] = v[begin + k] - turned;
        v[begin + k] += turned;
      }
    }
  }
}

std::vector<float> MelSpectrogram::Compute(std::span<const float> pcm) const {
  const auto samples = static_cast<int64_t>(pcm.size());
  // Reflected at both ends, the end itself not repeated.
  const auto sample = [&](int64_t i) {
    if (i < 0) i = -i;
    if (i >= samples) i = 2 * (samples - 1) - i;
    return pcm[static_cast<size_t>(i)];
  };
  const int64_t frames = Frames(samples);
  std::vector<float> mels;
  mels.reserve(static_cast<size_t>(frames) * bands_.size());
  std::vector<std::complex<double>> spectrum(kLength);
  std::vector<double> magnitudes(kFrequencies);
  for (int64_t t = 0; t < frames; ++t) {
    for (int64_t n = 0; n < kLength; ++n) {
      const auto i = static_cast<size_t>(n);
      spectrum[i] = static_cast<double>(window_[i]) * static_cast<double>(sample(t * kHop + n - kPadding));
    }
    Transform(&spectrum);
    for (size_t f = 0; f < magnitudes.size(); ++f) magnitudes[f] = std::sqrt(std::norm(spectrum[f]) + kLeastPower);
    for (const Band& band : bands_) {
      double sum = 0;
      for (size_t i = 0; i < band.weights.size(); ++i) {
        sum += static_cast<double>(band.weights[i]) * magnitudes[static_cast<size_t>(band.first) + i];
      }
      mels.push_back(static_cast<float>(std::log(std::max(sum, kLeastMel))));
    }
  }
  return mels;
}

}  // namespace qtts::cpu
