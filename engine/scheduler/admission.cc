// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/admission.h"

#include <algorithm>
#include <utility>

namespace qtts {
namespace {

constexpr std::chrono::milliseconds kFrameTime{80};

}  // namespace

bool HasTime(const LoadForecast::Loads& loads, double slowness, StepModel* model, const AdmissionRules& rules) {
  if (!model->measured()) return loads.front().rows <= rules.unmeasured_rows;
  return std::all_of(loads.begin(), loads.end(), [&](const LoadForecast::Load& load) {
    return model->Predict(load.rows, load.positions) * slowness <= rules.max_seconds;
  });
}

std::chrono::milliseconds TimeUntilRoom(const LoadForecast::Loads& loads, int64_t ahead, StepModel* model,
                                        const AdmissionRules& rules) {
  // The others are as the one that waits: their contexts are short when they begin.
  const auto fits = [&](const LoadForecast::Load& load) {
    return model->Predict(load.rows + ahead, load.positions) <= rules.max_seconds;
  };
  size_t room = loads.size();
  while (room > 0 && fits(loads[room - 1])) --room;
  return std::min(kFarthestRoom, static_cast<int64_t>(room) * LoadForecast::kFrames * kFrameTime);
}

std::chrono::milliseconds TimeUntilEnds(std::vector<int64_t> frames_left, int64_t ahead) {
  if (ahead >= static_cast<int64_t>(frames_left.size())) return kFarthestRoom;
  const auto end = frames_left.begin() + ahead;
  std::nth_element(frames_left.begin(), end, frames_left.end());
  return std::min(kFarthestRoom, std::max<int64_t>(*end, 0) * kFrameTime);
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
