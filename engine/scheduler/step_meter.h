// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_STEP_METER_H_
#define QTTS_SCHEDULER_STEP_METER_H_

#include <atomic>
#include <cstdint>

#include "qtts/engine_options.h"
#include "scheduler/period_watch.h"
#include "scheduler/step_model.h"
#include "scheduler/step_policy.h"
#include "scheduler/views.h"

namespace qtts {

// Measures steps and updates the DeviceView with their times. Tell() may be called on any thread.
class StepMeter {
 public:
  // A step that is over.
  struct Step {
    StreamClock::time_point start;       // when it was submitted
    int64_t rows = 0;                    // streams
    int64_t positions = 0;               // those that the streams attend to
    double prompts = 0;                  // work on prompts since the step before, in frames' work
    StreamClock::duration predicted{0};  // its time; set by Submit()
  };

  // Counts a step that is submitted, and tells `device` when it will be done.
  void Submit(Step* step, DeviceView* device);
  // Counts a step that ended at `now`, and updates what `device` tells of its speed.
  void Add(const Step& step, StreamClock::time_point now, const StepPolicy& policy, DeviceView* device);
  // Returns PeriodWatch::slowness().
  double slowness(StreamClock::time_point now) const { return watch_.slowness(now); }
  // Returns PeriodWatch::until().
  StreamClock::time_point slow_until() const { return watch_.until(); }
  // Sets the counts of steps in `occupancy`.
  void Tell(Occupancy* occupancy) const;

 private:
  StepModel model_;
  PeriodWatch watch_;
  StreamClock::time_point ended_;    // end of the last step
  StreamClock::duration queued_{0};  // predicted time of the steps that have not ended
  std::atomic<uint64_t> steps_ = 0;
  std::atomic<uint64_t> frames_ = 0;
  std::atomic<int64_t> nanoseconds_ = 0;
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_STEP_METER_H_
