// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/admission.h"

#include <algorithm>
#include <utility>

namespace qtts {

bool HasTime(const LoadForecast::Loads& loads, double slowness, StepModel* model, const AdmissionRules& rules) {
  if (!model->measured()) return loads.front().rows <= rules.unmeasured_rows;
  return std::all_of(loads.begin(), loads.end(), [&](const LoadForecast::Load& load) {
    return model->Predict(load.rows, load.positions) * slowness <= rules.max_seconds;
  });
}

std::optional<std::chrono::milliseconds> TimeUntilRoom(const LoadForecast::Loads& loads, StepModel* model,
                                                       const AdmissionRules& rules) {
  size_t room = loads.size();
  while (room > 0 && model->Predict(loads[room - 1].rows, loads[room - 1].positions) <= rules.max_seconds) --room;
  if (room == loads.size()) return std::nullopt;
  const std::chrono::duration<double> time(static_cast<double>(room) * LoadForecast::kFrames * rules.frame_seconds);
  return std::chrono::ceil<std::chrono::milliseconds>(time);
}

void OpeningBudget::Advance(TimePoint now, double all_seconds) {
  const std::chrono::duration<double> passed = now - std::exchange(now_, now);
  share_ = std::max(rules_.min_share, (rules_.max_opening_seconds - all_seconds) / rules_.frame_seconds);
  seconds_ = std::min(rules_.max_budget, seconds_ + share_ * passed.count());
}

OpeningBudget::TimePoint OpeningBudget::When(double seconds) const {
  const std::chrono::duration<double> wait((Needed(seconds) - seconds_) / share_);
  return now_ + std::max(TimePoint::duration::zero(), std::chrono::ceil<TimePoint::duration>(wait));
}

}  // namespace qtts
