// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/step_meter.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "base/log.h"

namespace qtts {

void StepMeter::Submit(Step* step, DeviceView* device) {
  step->predicted = std::chrono::duration_cast<StreamClock::duration>(
      std::chrono::duration<double>(device->cost.Seconds(step->rows, step->positions, step->prompts)));
  queued_ += step->predicted;
  device->done_at = std::max(device->done_at, step->start) + step->predicted;
}

// Adds a step. Its time begins when the device was done with the one before.
void StepMeter::Add(const Step& step, StreamClock::time_point now, const StepPolicy& policy, DeviceView* device) {
  const std::chrono::nanoseconds took = now - std::max(step.start, ended_);
  const std::chrono::duration<double> passed = now - std::exchange(ended_, now);
  queued_ -= step.predicted;
  device->done_at = now + queued_;
  ++steps_;
  frames_ += static_cast<uint64_t>(step.rows);
  nanoseconds_ += took.count();
  constexpr double kMeanSeconds = 1;
  device->prompts_a_second += std::min(1.0, passed.count() / kMeanSeconds) *
                              (step.prompts / std::max(passed.count(), 1e-3) - device->prompts_a_second);
  const double seconds = std::chrono::duration<double>(took).count();
  StepCost& cost = device->cost;
  cost.mean_positions = static_cast<double>(step.positions) / static_cast<double>(step.rows);
  if (device->many && cost.known && device->real_time > 0) {
    const double all = cost.SecondsOf(device->in_time());
    if (watch_.Add(now, seconds, cost.Seconds(step.rows, step.positions, step.prompts), all)) {
      Log(LogLevel::kDebug, "the device is slower than before, and " + std::to_string(device->in_time()) +
                                " utterances speak: for " + std::to_string(PeriodWatch::kWhile.count()) +
                                " s others begin as if steps took " +
                                std::to_string(static_cast<int>(watch_.slowness(now) * 100 - 100)) + " % longer");
    }
  }
  model_.Add(step.rows, step.positions, step.prompts, seconds);
  cost = model_.Cost(cost.mean_positions);
  device->busy = device->many && policy.IsBusy(*device);
}

void StepMeter::Tell(Occupancy* occupancy) const {
  occupancy->steps = steps_;
  occupancy->step_frames = frames_;
  occupancy->step_nanoseconds = nanoseconds_;
}

}  // namespace qtts
