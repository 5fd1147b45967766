// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_PERIOD_WATCH_H_
#define QTTS_SCHEDULER_PERIOD_WATCH_H_

#include <chrono>

namespace qtts {

// Detects that the device has become too slow for the streams that speak, before the model of a step's time has
// adapted. Once per frame time it compares the steps' times with the model's. If a step of all streams would have taken
// nearly a whole frame time in three frame times in a row, no utterance begins for a while. Not thread-safe.
class PeriodWatch {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kPause{2};

  // A step that ended at `now` took `seconds`. The model said `predicted`, and `all` for a step of all streams. Returns
  // true if a pause begins.
  bool Add(TimePoint now, double seconds, double predicted, double all) {
    took_ += seconds;
    predicted_ += predicted;
    if (now - begin_ < kPeriod) return false;
    slow_ = predicted_ > 0 && took_ / predicted_ * all > kSlowSeconds ? slow_ + 1 : 0;
    const bool pauses = slow_ == kMostSlow;
    if (pauses) {
      until_ = now + kPause;
      slow_ = 0;
    }
    begin_ = now;
    took_ = predicted_ = 0;
    return pauses;
  }
  // No utterance may begin before this time. In the past if there is no pause.
  TimePoint until() const { return until_; }

 private:
  static constexpr std::chrono::milliseconds kPeriod{80};
  static constexpr double kSlowSeconds = 0.076;
  static constexpr int kMostSlow = 3;

  TimePoint begin_;
  TimePoint until_;
  double took_ = 0;
  double predicted_ = 0;
  int slow_ = 0;
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_PERIOD_WATCH_H_
