// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_BACKEND_MEL_TABLES_H_
#define QTTS_BACKEND_MEL_TABLES_H_

#include <complex>
#include <cstdint>
#include <vector>

namespace qtts {

// Tables of the speaker encoder's log-mel spectrogram, for every device (spec 9.1): windows of 1024 samples at 24 kHz
// every 256 samples; magnitudes sqrt(|X|^2 + kMinPower) through a Slaney filterbank from 0 to 12 kHz; natural
// logarithm, clamped at kMinMel. Both ends are padded by reflecting kPadding samples, without repeating the end
// sample.
//
// Immutable and thread-safe.
struct MelTables {
  static constexpr int64_t kLength = 1024;  // length of window and transform
  static constexpr int64_t kHop = 256;
  static constexpr int64_t kPadding = (kLength - kHop) / 2;
  static constexpr int64_t kFrequencies = kLength / 2 + 1;
  static constexpr double kMinPower = 1e-9;
  static constexpr double kMinMel = 1e-5;

  // Minimum number of samples: shorter inputs cannot be reflected at the ends.
  static constexpr int64_t kLeastSamples = kPadding + 1;

  static int64_t Frames(int64_t samples);
  // Returns the smallest number of samples that gives `frames` frames.
  static int64_t Samples(int64_t frames);

  // A triangular filter over consecutive frequencies.
  struct Band {
    int64_t first = 0;
    std::vector<float> weights;
  };

  explicit MelTables(int64_t bins);

  std::vector<float> window;                // [kLength]
  std::vector<std::complex<double>> roots;  // roots of unity exp(-2 pi i k / kLength), the first half
  std::vector<Band> bands;                  // [bins]
};

}  // namespace qtts

#endif  // QTTS_BACKEND_MEL_TABLES_H_
