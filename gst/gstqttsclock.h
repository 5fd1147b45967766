// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_CLOCK_H_
#define GST_QTTS_CLOCK_H_

#include <gst/gst.h>

#include <functional>
#include <memory>
#include <optional>

#include "qtts/mutex.h"

namespace gstqtts {

// The clock of a live source that waits for the running time of its buffers itself. GstBaseSrc would drop a buffer
// whose wait is interrupted by a pause.
//
// Running time exists only in PLAYING. Waits and the alarm survive a pause, and continue with the element's new clock
// and base time.
//
// Owned by the element. SetPlaying(), ClockChanged(), SetUnlocked() and Recheck() may be called on any thread, the rest
// by the streaming thread. The lock is not held while waiting.
class LiveClock {
 public:
  explicit LiveClock(GstElement* element) : element_(element) {}
  ~LiveClock() { CancelAlarm(); }
  LiveClock(const LiveClock&) = delete;
  LiveClock& operator=(const LiveClock&) = delete;

  // Waits until the element plays. Returns its running time, or none if it has no clock. Returns false if interrupted
  // by SetUnlocked(true).
  bool WaitForNow(std::optional<GstClockTime>* now);
  // Waits until the element plays and its running time is `running_time`, or until `wanted`, if given, returns false;
  // it is called at the start of the wait and by Recheck(). Returns false if interrupted by SetUnlocked(true). Without
  // a clock it does not wait for the time.
  bool WaitUntil(GstClockTime running_time, const std::function<bool()>& wanted = {});
  // Evaluates `wanted` again.
  void Recheck();
  void SetUnlocked(bool unlocked);

  // Notes whether the element plays; its clock and base time are known when it begins to play.
  void SetPlaying(bool playing);
  // Takes note that the element has another clock.
  void ClockChanged();

  // Calls `wake` at `running_time`, or now if that has passed or there is no clock. At most one alarm is set. `wake`
  // may still be called once after CancelAlarm().
  void SetAlarm(GstClockTime running_time, const std::function<void()>& wake);
  void CancelAlarm();

 private:
  struct Alarm {
    GstClockTime running_time;
    std::function<void()> wake;
  };

  using ClockRef = std::unique_ptr<GstClock, void (*)(gpointer)>;

  ClockRef RefClock() const { return {gst_element_get_clock(element_), gst_object_unref}; }
  std::optional<GstClockTime> Now(GstClock* clock) const QTTS_REQUIRES(mutex_);
  GstClockID NewId(GstClock* clock, GstClockTime running_time) const;
  void Restart() QTTS_REQUIRES(mutex_);
  void StartAlarm() QTTS_REQUIRES(mutex_);
  void StopAlarm() QTTS_REQUIRES(mutex_);

  GstElement* const element_;

  qtts::Mutex mutex_;
  qtts::Condition changed_;
  bool playing_ QTTS_GUARDED_BY(mutex_) = false;
  bool unlocked_ QTTS_GUARDED_BY(mutex_) = false;
  GstClockID waiting_ QTTS_GUARDED_BY(mutex_) = nullptr;
  std::optional<Alarm> alarm_ QTTS_GUARDED_BY(mutex_);
  GstClockID alarm_id_ QTTS_GUARDED_BY(mutex_) = nullptr;  // while it plays
};

}  // namespace gstqtts

#endif  // GST_QTTS_CLOCK_H_
