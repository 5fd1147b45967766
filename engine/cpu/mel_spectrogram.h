// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_MEL_SPECTROGRAM_H_
#define QTTS_CPU_MEL_SPECTROGRAM_H_

#include <complex>
#include <cstdint>
#include <span>
#include <vector>

namespace qtts::cpu {

// The log-mel spectrogram that the speaker encoder hears (spec 9.1): windows of 1024 samples of 24 kHz
// every 256, magnitudes through a Slaney filterbank from 0 to 12 kHz, natural logarithm. Computed in
// double precision, since the logarithm makes rounding errors of quiet bands large.
//
// Immutable and thread-safe.
class MelSpectrogram {
 public:
  explicit MelSpectrogram(int64_t bins);

  // Samples needed at least: less cannot be reflected at the ends.
  static constexpr int64_t kLeastSamples = 385;

  int64_t bins() const { return static_cast<int64_t>(bands_.size()); }
  static int64_t Frames(int64_t samples);

  // pcm, of at least kLeastSamples, to [Frames(samples)][bins].
  std::vector<float> Compute(std::span<const float> pcm) const;

 private:
  // A triangle over neighbouring frequencies.
  struct Band {
    int64_t first = 0;
    std::vector<float> weights;
  };

  // Discrete Fourier transform of the window's length, in place.
  void Transform(std::vector<std::complex<double>>* x) const;

  std::vector<float> window_;
  std::vector<std::complex<double>> roots_;  // of unity: exp(-2 pi i k / length), the first half
  std::vector<Band> bands_;
};

}  // namespace qtts::cpu

#endif  // QTTS_CPU_MEL_SPECTROGRAM_H_
