// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_CLOCK_H_
#define GST_QTTS_CLOCK_H_

#include <gst/gst.h>

#include <functional>
#include <mutex>
#include <optional>

namespace gstqtts {

// The clock of an element, in running time, for a live source that waits for the time of its buffers
// itself. (GstBaseSrc would drop the buffer whose wait a pause interrupts.)
//
// Owned by the element. SetUnlocked() may be called on any thread, the rest by the streaming thread.
class LiveClock {
 public:
  explicit LiveClock(GstElement* element) : element_(element) {}
  ~LiveClock() { CancelAlarm(); }
  LiveClock(const LiveClock&) = delete;
  LiveClock& operator=(const LiveClock&) = delete;

  // Running time, 0 before the base time; nothing when the element has no clock.
  std::optional<GstClockTime> Now() const;

  // Waits until `running_time`. False if it is interrupted by SetUnlocked(true). Without a clock it does
  // not wait.
  bool WaitUntil(GstClockTime running_time);
  void SetUnlocked(bool unlocked);

  // Calls `wake` at `running_time` or, if that is over or there is no clock, now. At most one alarm is set;
  // `wake` may still be called once after CancelAlarm().
  void SetAlarm(GstClockTime running_time, const std::function<void()>& wake);
  void CancelAlarm();

 private:
  // A clock id for `running_time`; null without a clock. The caller owns it.
  GstClockID NewId(GstClockTime running_time) const;

  GstElement* const element_;
  GstClockID alarm_ = nullptr;

  std::mutex mutex_;
  bool unlocked_ = false;
  GstClockID waiting_ = nullptr;
};

}  // namespace gstqtts

#endif  // GST_QTTS_CLOCK_H_
