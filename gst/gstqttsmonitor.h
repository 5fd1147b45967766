// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_MONITOR_H_
#define GST_QTTS_MONITOR_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include "qtts/mutex.h"

namespace gstqtts {

// Represents the mutex of any Monitor for Clang's analysis, which cannot know that the parts of a Speech share one
// Monitor.
struct QTTS_CAPABILITY("monitor") MonitorRole {};
inline constexpr MonitorRole monitor_held;

// State of a run of a Speech.
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

// The mutex and condition of a Speech. It guards the Intake, the Player, the current utterance and the RunState. It is
// held briefly: never while calling an engine or a stream, while destroying one, or while reporting.
//
// Lock order in the element: settings, LiveClock, Monitor, Reports.
//
// Owned by the Speech and, through their callbacks, by engines and loads, which may outlive it. Thread-safe; what needs
// the mutex says so.
class Monitor {
 public:
  using Clock = std::chrono::steady_clock;

  RunState run QTTS_GUARDED_BY(monitor_held);
  bool woken QTTS_GUARDED_BY(monitor_held) = false;  // by Player::waker()

  // Notifies waiting threads of a change.
  void Announce() QTTS_REQUIRES(monitor_held) {
    ++changes_;
    changed_.NotifyAll();
  }
  void LockAndAnnounce();

  // Returns the number of changes so far. Atomic: pollers read it without the mutex.
  uint64_t changes() const { return changes_; }

  // Waits until the number of changes exceeds `seen`; releases the mutex meanwhile. Returns false if `until` was
  // reached first.
  bool Wait(uint64_t seen, std::optional<Clock::time_point> until = {}) QTTS_REQUIRES(monitor_held) {
    mutex_.AssertHeld();
    while (changes_ == seen) {
      if (!until) {
        changed_.Wait(mutex_);
      } else if (!changed_.WaitUntil(mutex_, *until)) {
        return changes_ != seen;
      }
    }
    return true;
  }

 private:
  friend class MonitorLock;
  friend class MonitorUnlock;

  qtts::Mutex mutex_;
  qtts::Condition changed_;
  std::atomic<uint64_t> changes_ = 0;  // written with the mutex held
};

// Holds the monitor's mutex for a scope.
class QTTS_SCOPED_CAPABILITY MonitorLock {
 public:
  explicit MonitorLock(Monitor& monitor) QTTS_ACQUIRE(monitor_held) : monitor_(monitor) { monitor_.mutex_.lock(); }
  ~MonitorLock() QTTS_RELEASE() { monitor_.mutex_.unlock(); }
  MonitorLock(const MonitorLock&) = delete;
  MonitorLock& operator=(const MonitorLock&) = delete;

 private:
  Monitor& monitor_;
};

// Releases the held monitor mutex for a scope.
class QTTS_SCOPED_CAPABILITY MonitorUnlock {
 public:
  explicit MonitorUnlock(Monitor& monitor) QTTS_RELEASE(monitor_held) : monitor_(monitor) { monitor_.mutex_.unlock(); }
  ~MonitorUnlock() QTTS_RELEASE() { monitor_.mutex_.lock(); }
  MonitorUnlock(const MonitorUnlock&) = delete;
  MonitorUnlock& operator=(const MonitorUnlock&) = delete;

 private:
  Monitor& monitor_;
};

inline void Monitor::LockAndAnnounce() {
  const MonitorLock lock(*this);
  Announce();
}

}  // namespace gstqtts

#endif  // GST_QTTS_MONITOR_H_
