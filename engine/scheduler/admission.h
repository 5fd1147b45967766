// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_ADMISSION_H_
#define QTTS_SCHEDULER_ADMISSION_H_

#include <chrono>
#include <cstdint>
#include <vector>

#include "scheduler/load_forecast.h"
#include "scheduler/step_model.h"

namespace qtts {

// Constants of the admission by time.
struct AdmissionRules {
  // Part of a frame's time that a step of all real-time streams may take. The rest is a reserve for what the model of a
  // step's time lacks.
  double max_seconds = 0.072;
  double frame_seconds = 0.080;
  // Streams that may begin before a step was measured. A device that is set to more slots has time for them.
  int64_t unmeasured_rows = 64;
  // Part of a frame's time that steps, prompts and first frames may take together. Such work ends, and streams of a
  // busy device are some frames ahead of their readers.
  double max_opening_seconds = 0.076;
  // Device time for prompts and first frames that may be saved up: the others' frames are late by no more.
  double max_budget = 0.024;
  // The least share of the device's time for prompts and first frames, so that a stream that was admitted begins.
  double min_share = 0.02;
};

// True if all real-time streams keep up with their readers, also when their contexts have grown, by the forecast
// `loads` with the stream that waits. `slowness`: how many times as long as predicted steps take (PeriodWatch).
bool HasTime(const LoadForecast::Loads& loads, double slowness, StepModel* model, const AdmissionRules& rules = {});

// How long until there is time for the stream that waits and for `ahead` others before it, by the forecast `loads` with
// it: zero if there is now. At most kFarthestRoom.
inline constexpr std::chrono::milliseconds kFarthestRoom{LoadForecast::kTimes * LoadForecast::kFrames * 80};
std::chrono::milliseconds TimeUntilRoom(const LoadForecast::Loads& loads, int64_t ahead, StepModel* model,
                                        const AdmissionRules& rules = {});

// How long until `ahead` + 1 of the streams that speak have ended. `frames_left`: the frames that each is expected to
// have yet. At most kFarthestRoom.
std::chrono::milliseconds TimeUntilEnds(std::vector<int64_t> frames_left, int64_t ahead);

// Device time for the prompts and first frames of utterances that begin: what steps of all real-time streams leave.
// Utterances that come faster gather, and share a pass over their prompts and their first steps. Time is passed in.
class OpeningBudget {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  explicit OpeningBudget(const AdmissionRules& rules = {}) : rules_(rules), seconds_(rules.max_budget) {}

  // Time has passed until `now`, while a step of all real-time streams took `all_seconds`.
  void Advance(TimePoint now, double all_seconds);
  // True if utterances whose beginning takes `seconds` may begin.
  bool Allows(double seconds) const { return seconds_ >= Needed(seconds); }
  // When it will allow them, if nothing else begins.
  TimePoint When(double seconds) const;
  // How long what takes `seconds` takes beside the others' steps, if nothing else begins.
  std::chrono::milliseconds TimeFor(double seconds) const {
    return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(seconds / share_));
  }
  void Spend(double seconds) { seconds_ -= seconds; }

 private:
  double Needed(double seconds) const { return seconds < rules_.max_budget ? seconds : rules_.max_budget; }

  const AdmissionRules rules_;
  TimePoint now_;
  double share_ = 1;
  double seconds_;
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_ADMISSION_H_
