// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_LOAD_FORECAST_H_
#define QTTS_SCHEDULER_LOAD_FORECAST_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace qtts {

// Forecasts the rows of a step of all streams, and the positions that they attend to, while contexts grow and streams
// end: now, and every kFrames frames from then on. Not thread-safe.
class LoadForecast {
 public:
  static constexpr int64_t kFrames = 16;
  static constexpr size_t kTimes = 64;  // some 80 s
  struct Load {
    int64_t rows = 0;
    int64_t positions = 0;

    bool operator==(const Load&) const = default;
  };
  using Loads = std::array<Load, kTimes>;

  void Clear() { loads_ = {}; }
  // A stream whose context has `positions` now, and `last` at its expected end.
  void Add(int64_t positions, int64_t last) { loads_ = With(positions, last); }
  // The loads with one more stream.
  Loads With(int64_t positions, int64_t last) const {
    Loads loads = loads_;
    for (size_t n = 0; n < kTimes; ++n) {
      const int64_t at = positions + static_cast<int64_t>(n) * kFrames;
      if (n > 0 && at >= last) break;
      ++loads[n].rows;
      loads[n].positions += at;
    }
    return loads;
  }
  const Loads& loads() const { return loads_; }

 private:
  Loads loads_ = {};
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_LOAD_FORECAST_H_
