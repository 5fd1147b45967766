// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_ANNOUNCER_H_
#define QTTS_SCHEDULER_ANNOUNCER_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "qtts/mutex.h"
#include "qtts/status.h"
#include "scheduler/stream_clock.h"

namespace qtts {

class StreamState;

// Tells readers that frames of their streams became readable. Such a call wakes the reader's thread, which takes some
// 10 us: with a thousand streams a step's time. Hence calls of large steps are made by a thread of their own, in their
// order, while the scheduler goes on. First frames are announced at once, and so is all of small steps, where a
// hand-over would only delay. No stream has two calls at the same time.
//
// Owned by the scheduler, whose thread calls it.
class Announcer {
 public:
  // Starts the thread. Errors: kResourceExhausted.
  static Result<std::unique_ptr<Announcer>> Create();
  // Makes all calls that were asked for, and stops the thread.
  ~Announcer();
  Announcer(const Announcer&) = delete;
  Announcer& operator=(const Announcer&) = delete;

  // Sets the number of streams in the step whose frames are announced next. A simulation has one thread.
  void BeginStep(size_t streams) { large_ = streams >= kLargeStep && StreamClock::simulation() == nullptr; }
  // Calls StreamState::CallReader(), now or on the thread. `first`: the stream has not been announced before.
  void Announce(const std::shared_ptr<StreamState>& stream, bool first);

 private:
  static constexpr size_t kLargeStep = 16;

  Announcer() = default;
  void Run();

  bool large_ = false;
  std::atomic<size_t> left_ = 0;  // calls that the thread has to make, or makes
  Mutex mutex_;
  Condition coming_;
  std::vector<std::shared_ptr<StreamState>> queue_ QTTS_GUARDED_BY(mutex_);
  bool stopping_ QTTS_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_ANNOUNCER_H_
