// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsclock.h"

#include <utility>

namespace gstqtts {

bool LiveClock::WaitForNow(std::optional<GstClockTime>* now) {
  const qtts::MutexLock lock(mutex_);
  while (!playing_ && !unlocked_) changed_.Wait(mutex_);
  if (unlocked_) return false;
  *now = Now(RefClock().get());
  return true;
}

bool LiveClock::WaitUntil(GstClockTime running_time, const std::function<bool()>& wanted) {
  const qtts::MutexLock lock(mutex_);
  for (;;) {
    while (!playing_ && !unlocked_ && !(wanted && !wanted())) changed_.Wait(mutex_);
    if (unlocked_) return false;
    if (wanted && !wanted()) return true;
    GstClockID id = nullptr;
    {
      const ClockRef clock = RefClock();
      if (Now(clock.get()).value_or(running_time) >= running_time) return true;
      id = NewId(clock.get(), running_time);
    }
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

// --- with the lock held. Another thread may take the clock from the element, so each function asks for it once.

// Returns the running time by `clock`; none in a pause or without a clock.
std::optional<GstClockTime> LiveClock::Now(GstClock* clock) const {
  if (!playing_ || clock == nullptr) return std::nullopt;
  const GstClockTime now = gst_clock_get_time(clock);
  const GstClockTime base = gst_element_get_base_time(element_);
  return now > base ? now - base : 0;
}

// Returns a new id, of the caller.
GstClockID LiveClock::NewId(GstClock* clock, GstClockTime running_time) const {
  return gst_clock_new_single_shot_id(clock, gst_element_get_base_time(element_) + running_time);
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
  const ClockRef clock = RefClock();
  if (Now(clock.get()).value_or(alarm_->running_time) >= alarm_->running_time) {
    alarm_->wake();
    return;
  }
  alarm_id_ = NewId(clock.get(), alarm_->running_time);
  auto* argument = new std::function<void()>(alarm_->wake);
  const auto ring = [](GstClock* /*clock*/, GstClockTime /*time*/, GstClockID /*id*/, gpointer data) -> gboolean {
    (*static_cast<std::function<void()>*>(data))();
    return TRUE;
  };
  const auto free = [](gpointer data) { delete static_cast<std::function<void()>*>(data); };
  const GstClockReturn set = gst_clock_id_wait_async(alarm_id_, ring, argument, free);
  if (set == GST_CLOCK_UNSUPPORTED || set == GST_CLOCK_BADTIME) free(argument);  // the id has not taken it
  if (set != GST_CLOCK_OK) alarm_->wake();
}

void LiveClock::StopAlarm() {
  GstClockID id = std::exchange(alarm_id_, nullptr);
  if (id == nullptr) return;
  gst_clock_id_unschedule(id);
  gst_clock_id_unref(id);
}

}  // namespace gstqtts
