// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_CLOCK_H_
#define QTTS_SCHEDULER_CLOCK_H_

#include <atomic>
#include <chrono>
#include <optional>

namespace qtts {

// Time that does not pass by itself, for simulations: the scheduler's thread lets it pass where it would sleep. Used on
// that thread only.
class VirtualTime {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  virtual ~VirtualTime() = default;
  virtual time_point now() const = 0;
  // Lets time pass until `until`, or until `called` is true. Returns false if nothing can happen any more.
  virtual bool PassUntil(std::optional<time_point> until, const std::atomic<bool>& called) = 0;
};

// The scheduler's clock: std::chrono::steady_clock, unless the calling thread has virtual time.
class SchedulerClock {
 public:
  using duration = std::chrono::steady_clock::duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::steady_clock::time_point;
  static constexpr bool is_steady = true;

  static time_point now() { return virtual_time_ == nullptr ? std::chrono::steady_clock::now() : virtual_time_->now(); }
  static VirtualTime* virtual_time() { return virtual_time_; }
  static void SetVirtualTime(VirtualTime* time) { virtual_time_ = time; }

 private:
  static inline thread_local VirtualTime* virtual_time_ = nullptr;
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_CLOCK_H_
