// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_MEL_SPECTROGRAM_H_
#define QTTS_CPU_MEL_SPECTROGRAM_H_

#include <complex>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/mel_tables.h"

namespace qtts::cpu {

// The log-mel spectrogram that the speaker encoder takes as input (MelTables). Computed in double precision, since the
// logarithm amplifies rounding errors of quiet bands.
//
// Immutable and thread-safe.
class MelSpectrogram {
 public:
  explicit MelSpectrogram(int64_t bins) : tables_(bins) {}

  int64_t bins() const { return static_cast<int64_t>(tables_.bands.size()); }

  // Converts pcm of at least MelTables::kLeastSamples samples to [MelTables::Frames(samples)][bins].
  std::vector<float> Compute(std::span<const float> pcm) const;

 private:
  // Computes the discrete Fourier transform of the window's length, in place.
  void Transform(std::vector<std::complex<double>>* x) const;

  MelTables tables_;
};

}  // namespace qtts::cpu

#endif  // QTTS_CPU_MEL_SPECTROGRAM_H_
