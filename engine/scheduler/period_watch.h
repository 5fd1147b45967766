// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_PERIOD_WATCH_H_
#define QTTS_SCHEDULER_PERIOD_WATCH_H_

#include <algorithm>
#include <chrono>

namespace qtts {

// Detects that the device has become too slow for the streams that speak, before the model of a step's time has
// adapted. Once per frame time it compares the steps' times with the model's. If in three frame times in a row a step
// of all streams would have taken over 76 ms, steps are expected to be slower than the model says by the smallest ratio
// of the three, for 2 s. Not thread-safe.
class PeriodWatch {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  // Time for which steps are then expected to be slower.
  static constexpr std::chrono::seconds kWhile{2};

  // Adds a step that ended at `now` and took `seconds`. `predicted`: the model's time for it; `all`: the model's time
  // for a step of all streams. Returns true if steps are expected to be slower from now on.
  bool Add(TimePoint now, double seconds, double predicted, double all) {
    took_ += seconds;
    predicted_ += predicted;
    if (now - begin_ < kPeriod) return false;
    const double ratio = predicted_ > 0 ? took_ / predicted_ : 1;
    if (ratio * all > kSlowSeconds) {
      min_ = slow_ == 0 ? ratio : std::min(min_, ratio);
      ++slow_;
    } else {
      slow_ = 0;
    }
    const bool found = slow_ == kMaxSlow;
    if (found) {
      until_ = now + kWhile;
      slowness_ = std::max(min_, 1.0);
      slow_ = 0;
    }
    begin_ = now;
    took_ = predicted_ = 0;
    return found;
  }
  // Returns the factor by which steps are expected to take longer than the model says.
  double slowness(TimePoint now) const { return now < until_ ? slowness_ : 1; }
  // Returns the end of that time; in the past if it is over.
  TimePoint until() const { return until_; }

 private:
  static constexpr std::chrono::milliseconds kPeriod{80};
  static constexpr double kSlowSeconds = 0.076;
  static constexpr int kMaxSlow = 3;

  TimePoint begin_;
  TimePoint until_;
  double took_ = 0;
  double predicted_ = 0;
  double min_ = 1;  // ratio of the last slow_ frame times
  double slowness_ = 1;
  int slow_ = 0;
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_PERIOD_WATCH_H_
