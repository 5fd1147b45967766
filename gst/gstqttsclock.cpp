// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsclock.h"

#include <utility>

namespace gstqtts {

std::optional<GstClockTime> LiveClock::Now() const {
  GstClock* clock = gst_element_get_clock(element_);
  if (clock == nullptr) return std::nullopt;
  const GstClockTime now = gst_clock_get_time(clock);
  gst_object_unref(clock);
  const GstClockTime base = gst_element_get_base_time(element_);
  return now > base ? now - base : 0;
}

GstClockID LiveClock::NewId(GstClockTime running_time) const {
  GstClock* clock = gst_element_get_clock(element_);
  if (clock == nullptr) return nullptr;
  GstClockID id = gst_clock_new_single_shot_id(clock, gst_element_get_base_time(element_) + running_time);
  gst_object_unref(clock);
  return id;
}

bool LiveClock::WaitUntil(GstClockTime running_time) {
  GstClockID id = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (unlocked_) return false;
    if (Now().value_or(running_time) >= running_time) return true;
    waiting_ = id = NewId(running_time);
  }
  if (id == nullptr) return true;  // the clock went away
  const GstClockReturn result = gst_clock_id_wait(id, nullptr);
  {
    const std::lock_guard lock(mutex_);
    waiting_ = nullptr;
  }
  gst_clock_id_unref(id);
  return result != GST_CLOCK_UNSCHEDULED;
}

void LiveClock::SetUnlocked(bool unlocked) {
  const std::lock_guard lock(mutex_);
  unlocked_ = unlocked;
  if (unlocked && waiting_ != nullptr) gst_clock_id_unschedule(waiting_);
}

void LiveClock::SetAlarm(GstClockTime running_time, const std::function<void()>& wake) {
  CancelAlarm();
  const std::optional<GstClockTime> now = Now();
  if (!now || *now >= running_time) {
    wake();
    return;
  }
  alarm_ = NewId(running_time);
  auto* argument = new std::function<void()>(wake);
  const auto ring = [](GstClock* /*clock*/, GstClockTime /*time*/, GstClockID /*id*/, gpointer data) -> gboolean {
    (*static_cast<std::function<void()>*>(data))();
    return TRUE;
  };
  const auto free = [](gpointer data) { delete static_cast<std::function<void()>*>(data); };
  if (gst_clock_id_wait_async(alarm_, ring, argument, free) != GST_CLOCK_OK) wake();
}

void LiveClock::CancelAlarm() {
  GstClockID alarm = std::exchange(alarm_, nullptr);
  if (alarm == nullptr) return;
  gst_clock_id_unschedule(alarm);
  gst_clock_id_unref(alarm);
}

}  // namespace gstqtts
