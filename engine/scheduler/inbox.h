// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_INBOX_H_
#define QTTS_SCHEDULER_INBOX_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "qtts/mutex.h"
#include "scheduler/running.h"
#include "scheduler/views.h"

namespace qtts {

// Streams that have changed, for the scheduler's thread, which sleeps here. Thread-safe; Take() and Await() are the
// scheduler's. Allocates nothing once a stream is added.
class Inbox {
 public:
  // `poll`: an announced stream is polled for, see Expect().
  explicit Inbox(bool poll) : poll_(poll) {}

  // Adds a stream, which from now on lists itself when it may be able to go on.
  void Add(RunningPtr running);
  // Announces a stream. The idle scheduler then polls for it for up to 1 ms, since waking a thread takes as long as
  // tokenizing a text.
  void Expect();
  void Stop();
  bool stopping() const { return stopping_; }

  // Takes a stream out; null if there is none.
  RunningPtr Take();
  // Waits, if `wait`, until a stream is listed, Stop() is called or it is `until`. Then forgets what was announced.
  void Await(bool wait, const std::optional<StreamClock::time_point>& until);

 private:
  void List(RunningPtr running);
  void Wait(const std::optional<StreamClock::time_point>& until) QTTS_REQUIRES(mutex_);

  const bool poll_;
  Mutex mutex_;
  Condition changed_;
  RunningPtr list_ QTTS_GUARDED_BY(mutex_);  // linked, the last first
  uint64_t arrivals_ QTTS_GUARDED_BY(mutex_) = 0;
  bool expected_ QTTS_GUARDED_BY(mutex_) = false;
  // Written with `mutex_` held. Atomic: they are also read without it.
  std::atomic<bool> called_ = false;    // something changed; Wait() polls it
  std::atomic<bool> stopping_ = false;  // checked between a piece of a prompt and a step
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_INBOX_H_
