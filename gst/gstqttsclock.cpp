// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsclock.h"

#include <utility>

namespace gstqtts {

bool LiveClock::WaitForNow(std::optional<GstClockTime>* now) {
  const qtts::MutexLock lock(mutex_);
  while (!playing_ && !unlocked_) changed_.Wait(mutex_);
  if (unlocked_) return false;
  *now = Now();
  return true;
}

bool LiveClock::WaitUntil(GstClockTime running_time, const std::function<bool()>& wanted) {
  const qtts::MutexLock lock(mutex_);
  for (;;) {
    while (!playing_ && !unlocked_ && !(wanted && !wanted())) changed_.Wait(mutex_);
    if (unlocked_) return false;
    if (wanted && !wanted()) return true;
    if (Now().value_or(running_time) >= running_time) return true;
    GstClockID id = NewId(running_time);
    if (id == nullptr) return true;  // the clock went away
    waiting_ = id;
    GstClockReturn result = GST_CLOCK_OK;
    {
      const qtts::MutexUnlock unlock(mutex_);
      result = gst_clock_id_wait(id, nullptr);
    }
    waiting_ = nullptr;
    gst_clock_id_unref(id);
    if (result != GST_CLOCK_UNSCHEDULED) return !unlocked_;
  }
}

void LiveClock::Recheck() {
  const qtts::MutexLock lock(mutex_);
  if (waiting_ != nullptr) gst_clock_id_unschedule(waiting_);
  changed_.NotifyAll();
}

void LiveClock::SetUnlocked(bool unlocked) {
  const qtts::MutexLock lock(mutex_);
  unlocked_ = unlocked;
  if (waiting_ != nullptr) gst_clock_id_unschedule(waiting_);
  changed_.NotifyAll();
}

void LiveClock::SetPlaying(bool playing) {
  const qtts::MutexLock lock(mutex_);
  playing_ = playing;
  Restart();
}

void LiveClock::ClockChanged() {
  const qtts::MutexLock lock(mutex_);
  Restart();
}

void LiveClock::SetAlarm(GstClockTime running_time, const std::function<void()>& wake) {
  const qtts::MutexLock lock(mutex_);
  StopAlarm();
  alarm_ = {running_time, wake};
  StartAlarm();
}

void LiveClock::CancelAlarm() {
  const qtts::MutexLock lock(mutex_);
  StopAlarm();
  alarm_.reset();
}

// --- with the lock held

std::optional<GstClockTime> LiveClock::Now() const {
  if (!playing_) return std::nullopt;
  GstClock* clock = gst_element_get_clock(element_);
  if (clock == nullptr) return std::nullopt;
  const GstClockTime now = gst_clock_get_time(clock);
  gst_object_unref(clock);
  const GstClockTime base = gst_element_get_base_time(element_);
  return now > base ? now - base : 0;
}

// Null without a clock. The caller owns it.
GstClockID LiveClock::NewId(GstClockTime running_time) const {
  GstClock* clock = gst_element_get_clock(element_);
  if (clock == nullptr) return nullptr;
  GstClockID id = gst_clock_new_single_shot_id(clock, gst_element_get_base_time(element_) + running_time);
  gst_object_unref(clock);
  return id;
}

// Restarts the waits. An id that is unscheduled before the wait begins does not wait.
void LiveClock::Restart() {
  if (waiting_ != nullptr) gst_clock_id_unschedule(waiting_);
  StopAlarm();
  StartAlarm();
  changed_.NotifyAll();
}

void LiveClock::StartAlarm() {
  if (!alarm_ || !playing_) return;
  if (Now().value_or(alarm_->running_time) >= alarm_->running_time) {
    alarm_->wake();
    return;
  }
  alarm_id_ = NewId(alarm_->running_time);
  auto* argument = new std::function<void()>(alarm_->wake);
  const auto ring = [](GstClock* /*clock*/, GstClockTime /*time*/, GstClockID /*id*/, gpointer data) -> gboolean {
    (*static_cast<std::function<void()>*>(data))();
    return TRUE;
  };
  const auto free = [](gpointer data) { delete static_cast<std::function<void()>*>(data); };
  if (gst_clock_id_wait_async(alarm_id_, ring, argument, free) != GST_CLOCK_OK) alarm_->wake();
}

void LiveClock::StopAlarm() {
  GstClockID id = std::exchange(alarm_id_, nullptr);
  if (id == nullptr) return;
  gst_clock_id_unschedule(id);
  gst_clock_id_unref(id);
}

}  // namespace gstqtts
