// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_ADMISSION_H_
#define QTTS_SCHEDULER_ADMISSION_H_

#include <chrono>
#include <cstdint>
#include <optional>

#include "scheduler/load_forecast.h"
#include "scheduler/step_model.h"

namespace qtts {

// Constants of the admission by time.
struct AdmissionRules {
  // Part of a frame's time that a step of all real-time streams may take. The rest is a reserve for what the model of a
  // step's time lacks.
  double max_seconds = 0.072;
  // Streams that may begin before a step was measured. A device that is set to more slots has time for them.
  int64_t unmeasured_rows = 64;
};

// A device, its real-time streams and one that waits.
struct AdmissionView {
  LoadForecast::Loads loads = {};  // with the waiting stream
  double prompts = 0;              // work on prompts in a frame's time, in frames' work (PrefillProgress::work)
  double slowness = 1;             // how many times as long as predicted steps take (PeriodWatch)
};

// True if all real-time streams keep up with their readers beside the waiting one: now, beside the prompts that are
// run, and whenever their contexts have grown, by the forecast.
bool HasTime(const AdmissionView& view, StepModel* model, const AdmissionRules& rules = {});

// How long until there is time for the waiting stream, by the forecast: zero if there is now; nothing if there is none
// as far as the forecast looks ahead.
std::optional<std::chrono::milliseconds> TimeUntilRoom(const AdmissionView& view, StepModel* model,
                                                       const AdmissionRules& rules = {});

}  // namespace qtts

#endif  // QTTS_SCHEDULER_ADMISSION_H_
