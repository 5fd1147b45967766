// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_BACKEND_MEL_TABLES_H_
#define QTTS_BACKEND_MEL_TABLES_H_

#include <complex>
#include <cstdint>
#include <vector>

namespace qtts {

// What every device computes the speaker encoder's log-mel spectrogram with (spec 9.1): windows of 1024 samples
// of 24 kHz every 256, magnitudes sqrt(|X|^2 + kLeastPower) through a Slaney filterbank from 0 to 12 kHz, natural
// logarithm of no less than kLeastMel. The signal is reflected by kPadding samples at both ends, the ends themselves
// not repeated.
//
// Immutable and thread-safe.
struct MelTables {
  static constexpr int64_t kLength = 1024;  // of the window and the transform
  static constexpr int64_t kHop = 256;
  static constexpr int64_t kPadding = (kLength - kHop) / 2;
  static constexpr int64_t kFrequencies = kLength / 2 + 1;
  static constexpr double kLeastPower = 1e-9;
  static constexpr double kLeastMel = 1e-5;

  // Samples needed at least: less cannot be reflected at the ends.
  static constexpr int64_t kLeastSamples = kPadding + 1;

  static int64_t Frames(int64_t samples);
  // The fewest samples that make so many frames.
  static int64_t Samples(int64_t frames);

  // A triangle over neighbouring frequencies.
  struct Band {
    int64_t first = 0;
    std::vector<float> weights;
  };

  explicit MelTables(int64_t bins);

  std::vector<float> window;                // [kLength]
  std::vector<std::complex<double>> roots;  // of unity: exp(-2 pi i k / kLength), the first half
  std::vector<Band> bands;                  // [bins]
};

}  // namespace qtts

#endif  // QTTS_BACKEND_MEL_TABLES_H_
