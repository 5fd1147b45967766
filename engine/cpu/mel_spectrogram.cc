// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/mel_spectrogram.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace qtts::cpu {

void MelSpectrogram::Transform(std::vector<std::complex<double>>* x) const {
  // Radix-2 Cooley-Tukey FFT: bit-reversed order, then butterflies of growing size.
  std::vector<std::complex<double>>& v = *x;
  for (size_t i = 1, j = 0; i < v.size(); ++i) {
    size_t bit = v.size() / 2;
    for (; (j & bit) != 0; bit /= 2) j ^= bit;
    j |= bit;
    if (i < j) std::swap(v[i], v[j]);
  }
  for (size_t half = 1; half < v.size(); half *= 2) {
    const size_t stride = tables_.roots.size() / half;
    for (size_t begin = 0; begin < v.size(); begin += 2 * half) {
      for (size_t k = 0; k < half; ++k) {
        // Written out: std::complex's operator would check for infinities.
        const std::complex<double> r = tables_.roots[k * stride];
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
  // Both ends are padded by reflection, without repeating the end itself.
  const auto sample = [&](int64_t i) {
    if (i < 0) i = -i;
    if (i >= samples) i = 2 * (samples - 1) - i;
    return pcm[static_cast<size_t>(i)];
  };
  const int64_t frames = MelTables::Frames(samples);
  std::vector<float> mels;
  mels.reserve(static_cast<size_t>(frames) * tables_.bands.size());
  std::vector<std::complex<double>> spectrum(MelTables::kLength);
  std::vector<double> magnitudes(MelTables::kFrequencies);
  for (int64_t t = 0; t < frames; ++t) {
    for (int64_t n = 0; n < MelTables::kLength; ++n) {
      const auto i = static_cast<size_t>(n);
      spectrum[i] = static_cast<double>(tables_.window[i]) *
                    static_cast<double>(sample(t * MelTables::kHop + n - MelTables::kPadding));
    }
    Transform(&spectrum);
    for (size_t f = 0; f < magnitudes.size(); ++f)
      magnitudes[f] = std::sqrt(std::norm(spectrum[f]) + MelTables::kMinPower);
    for (const MelTables::Band& band : tables_.bands) {
      double sum = 0;
      for (size_t i = 0; i < band.weights.size(); ++i) {
        sum += static_cast<double>(band.weights[i]) * magnitudes[static_cast<size_t>(band.first) + i];
      }
      mels.push_back(static_cast<float>(std::log(std::max(sum, MelTables::kMinMel))));
    }
  }
  return mels;
}

}  // namespace qtts::cpu
