// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/admission.h"

namespace qtts {
namespace {

// The frame time of all released models.
constexpr std::chrono::milliseconds kFrameTime{80};

}  // namespace

bool HasTime(const AdmissionView& view, StepModel* model, const AdmissionRules& rules) {
  const LoadForecast::Load& now = view.loads.front();
  if (!model->measured()) return now.rows <= rules.unmeasured_rows;
  const double limit = rules.max_seconds / view.slowness;
  if (model->Predict(now.rows, now.positions, view.prompts) > limit) return false;
  for (const LoadForecast::Load& load : view.loads) {
    if (model->Predict(load.rows, load.positions) > limit) return false;
  }
  return true;
}

std::optional<std::chrono::milliseconds> TimeUntilRoom(const AdmissionView& view, StepModel* model,
                                                       const AdmissionRules& rules) {
  size_t room = LoadForecast::kTimes;
  while (room > 0) {
    const LoadForecast::Load& load = view.loads[room - 1];
    if (model->Predict(load.rows, load.positions) > rules.max_seconds) break;
    --room;
  }
  if (room == LoadForecast::kTimes) return std::nullopt;
  return static_cast<int64_t>(room) * LoadForecast::kFrames * kFrameTime;
}

}  // namespace qtts
