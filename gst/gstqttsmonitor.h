// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_MONITOR_H_
#define GST_QTTS_MONITOR_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

namespace gstqtts {

// What a run of a Speech allows.
struct RunState {
  bool active = false;    // from Start() to Halt()
  bool unlocked = false;  // by Speech::SetUnlocked()
  bool flushing = false;
  bool failed = false;          // no more speech in this run
  bool ending = false;          // by Speech::EndAfterCurrent()
  bool end_handed_out = false;  // Player::Event::kEndOfText
  uint64_t epoch = 0;           // counts interrupts, flushes and stops
  uint64_t flushes = 0;         // counts flushes and stops
  bool running() const { return active && !flushing; }
  bool takes_text() const { return !failed && !ending && !end_handed_out; }
};

// The mutex of a Speech, and what its threads wait with. It guards the Intake, the Player, the utterance that is being
// spoken and the RunState. It is held for moments: never while calling into an engine or a stream, while destroying
// one, or while reporting.
//
// Lock order in the element: settings, LiveClock, Monitor, Reports.
//
// Owned by the Speech and, through their callbacks, by engines and loads, which may outlive it. Thread-safe; what needs
// the mutex says so.
class Monitor {
 public:
  using Clock = std::chrono::steady_clock;

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

  // With the mutex held.
  RunState run;
  bool woken = false;  // by waker()

  // With the mutex held: something has changed for which somebody may be waiting.
  void Announce() {
    ++changes_;
    changed_.notify_all();
  }
  void LockAndAnnounce() {
    const std::lock_guard lock(mutex_);
    Announce();
  }

  // Number of changes so far. Pollers read it without the mutex.
  uint64_t changes() const { return changes_; }

  // With the mutex held, which is free meanwhile: waits until more than `seen` has changed. False if `until` came
  // first.
  bool Wait(uint64_t seen, std::optional<Clock::time_point> until = {}) {
    std::unique_lock lock(mutex_, std::adopt_lock);
    const auto changed = [this, seen] { return changes_ != seen; };
    bool in_time = true;
    if (until) {
      in_time = changed_.wait_until(lock, *until, changed);
    } else {
      changed_.wait(lock, changed);
    }
    lock.release();
    return in_time;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<uint64_t> changes_ = 0;  // written with the mutex held
};

// Holds the monitor's mutex for a scope.
class MonitorLock {
 public:
  explicit MonitorLock(Monitor& monitor) : monitor_(monitor) { monitor_.lock(); }
  ~MonitorLock() { monitor_.unlock(); }
  MonitorLock(const MonitorLock&) = delete;
  MonitorLock& operator=(const MonitorLock&) = delete;

 private:
  Monitor& monitor_;
};

// Leaves the monitor's mutex, which the thread holds, for a scope.
class MonitorUnlock {
 public:
  explicit MonitorUnlock(Monitor& monitor) : monitor_(monitor) { monitor_.unlock(); }
  ~MonitorUnlock() { monitor_.lock(); }
  MonitorUnlock(const MonitorUnlock&) = delete;
  MonitorUnlock& operator=(const MonitorUnlock&) = delete;

 private:
  Monitor& monitor_;
};

}  // namespace gstqtts

#endif  // GST_QTTS_MONITOR_H_
