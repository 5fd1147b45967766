// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_UNIT_ALIGNMENT_CONSTANT_LEVELS_H_
#define QTTS_TESTS_UNIT_ALIGNMENT_CONSTANT_LEVELS_H_

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace qtts::testing {

inline constexpr int kRate = 24000;

// Returns sound of constant levels in dB, each for a number of hops of 10 ms.
inline std::vector<float> Sound(const std::vector<std::pair<int, float>>& levels) {
  std::vector<float> pcm;
  for (const auto& [hops, level] : levels) {
    pcm.insert(pcm.end(), static_cast<size_t>(hops) * kRate / 100, std::pow(10.0F, level / 20));
  }
  return pcm;
}

}  // namespace qtts::testing

#endif  // QTTS_TESTS_UNIT_ALIGNMENT_CONSTANT_LEVELS_H_
