// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/admission.h"

namespace qtts {

Verdict Admission::Decide(const DeviceView& device, const WaitingView& first, double slowness) const {
  if (device.free_slots == 0) return Verdict::kNoSlot;
  if (!first.has_pages) return Verdict::kNoPages;
  return first.goes_on || HasTime(device, first.real_time, slowness) ? Verdict::kBegin : Verdict::kNoTime;
}

bool Admission::HasTime(const DeviceView& device, bool real_time, double slowness) const {
  if (!device.many || device.real_time == 0 || !device.cost.known || !real_time) return true;
  return device.SecondsWithPrompts(device.real_time + 1) * slowness <= max_busy_seconds;
}

std::optional<StreamClock::time_point> Admission::Deadline(std::chrono::nanoseconds max_wait, bool goes_on,
                                                           StreamClock::time_point now) const {
  if (goes_on || max_wait >= forever) return std::nullopt;
  return now + max_wait;
}

std::string Admission::Reason(Verdict verdict, const DeviceView& device, const ContextPages& pages) {
  const std::string speaking = std::to_string(device.speaking());
  if (verdict == Verdict::kNoSlot) return "all " + std::to_string(device.slots) + " slots of the engine are taken";
  if (verdict == Verdict::kNoPages) {
    return "the " + speaking + " utterances that speak need the device's memory, or are expected to (" +
           std::to_string(pages.free) + " of " + std::to_string(pages.total) + " pages are free)";
  }
  return "with the " + speaking + " utterances that speak the device has no time for another";
}

}  // namespace qtts
