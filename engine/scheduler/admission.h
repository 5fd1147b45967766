// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_ADMISSION_H_
#define QTTS_SCHEDULER_ADMISSION_H_

#include <chrono>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "scheduler/views.h"

namespace qtts {

// The decision on the utterance that waits first.
enum class Verdict {
  kBegin,
  kNoSlot,   // all slots are taken
  kNoPages,  // PagePolicy: the contexts would not fit
  kNoTime,   // real-time streams would not keep up with their readers
};

// An utterance that waits for a slot.
struct WaitingView {
  bool real_time = true;  // Request::real_time
  // The next part of an utterance that has spoken until now: there is time for it.
  bool goes_on = false;
  bool has_pages = true;  // for its context, by PagePolicy
};

// Decides whether the utterance that waits first may begin. Utterances begin in the order in which they came.
struct Admission {
  // Time of a step of all real-time streams and the newcomer, with prompts, at most.
  double max_busy_seconds = kMaxBusySeconds;
  // Utterances that may wait for longer than this are never refused.
  std::chrono::nanoseconds forever = std::chrono::hours(24 * 365);

  // Decides whether the first utterance that waits may begin. `slowness`: PeriodWatch::slowness(), a factor of the
  // device's cost.
  Verdict Decide(const DeviceView& device, const WaitingView& first, double slowness) const;

  // Returns true if all real-time streams would keep up with their readers beside one more utterance, and beside as
  // many prompts as of late. Always true for one that is not real-time: it gives way to them.
  bool HasTime(const DeviceView& device, bool real_time, double slowness) const;

  // Returns the time at which an utterance that waits from `now` on is refused; none: never. `max_wait`:
  // Request::max_wait.
  std::optional<StreamClock::time_point> Deadline(std::chrono::nanoseconds max_wait, bool goes_on,
                                                  StreamClock::time_point now) const;

  // Returns the reason for which an utterance is refused after `verdict`, for its error.
  static std::string Reason(Verdict verdict, const DeviceView& device, const ContextPages& pages);
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_ADMISSION_H_
