// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_YIELD_POLICY_H_
#define QTTS_SCHEDULER_YIELD_POLICY_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "scheduler/views.h"

namespace qtts {

// Decides how many streams that are not real-time (Request::real_time: speech for files) take part in a step beside
// real-time ones, to which they give way.
struct YieldPolicy {
  // Sound that readers of real-time streams still have in hand after such a step: two frames.
  std::chrono::milliseconds in_hand{160};
  // Longest time for which none takes part.
  std::chrono::milliseconds longest_yield{250};

  // Returns how long a step may take for the sake of `real_time` streams, which have slots and have not ended. At most
  // a frame's time, since a first frame, or one whose text was late, may be wanted while it runs.
  StreamClock::duration TimeForOthers(std::span<const StreamView> real_time, StreamClock::time_point now) const;

  // Returns how many of a step's candidates it has time for. `positions`: those that each attends to, the `real_time`
  // ones first, which all take part. `prompts`: work on prompts before the step, in frames' work. `yielded`: time since
  // others took part.
  size_t Rows(const StepCost& cost, std::span<const int64_t> positions, size_t real_time, double prompts,
              StreamClock::duration time, StreamClock::duration yielded) const;
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_YIELD_POLICY_H_
