// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/inbox.h"

#include <chrono>
#include <thread>
#include <utility>

#include "qtts/polling.h"

namespace qtts {
namespace {

constexpr std::chrono::milliseconds kPatience{1};

}  // namespace

void Inbox::Add(RunningPtr running) {
  {
    const MutexLock lock(mutex_);
    running->arrival = ++arrivals_;
  }
  running->stream->SetWake([this, weak = std::weak_ptr<Running>(running)] {
    if (RunningPtr changed = weak.lock()) List(std::move(changed));
  });
  List(std::move(running));
}

void Inbox::Expect() {
  if (!poll_) return;
  {
    const MutexLock lock(mutex_);
    expected_ = true;
  }
  changed_.NotifyAll();
}

void Inbox::Stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = called_ = true;
  }
  changed_.NotifyAll();
}

// Lists a stream that may be able to go on, or has ended, and wakes the thread.
void Inbox::List(RunningPtr running) {
  {
    const MutexLock lock(mutex_);
    if (running->changed) return;  // the thread was woken before
    running->changed = true;
    running->next_changed = std::move(list_);
    list_ = std::move(running);
    called_ = true;
  }
  changed_.NotifyAll();
}

RunningPtr Inbox::Take() {
  const MutexLock lock(mutex_);
  RunningPtr running = std::move(list_);
  if (running == nullptr) return nullptr;
  list_ = std::move(running->next_changed);
  running->changed = false;
  return running;
}

void Inbox::Await(bool wait, const std::optional<StreamClock::time_point>& until) {
  const MutexLock lock(mutex_);
  if (wait) Wait(until);
  called_ = expected_ = false;
}

void Inbox::Wait(const std::optional<StreamClock::time_point>& until) {
  if (StreamClock::Simulation* const simulation = StreamClock::simulation()) {
    for (bool goes_on = true; goes_on;) {
      if (called_ || (until && simulation->now() >= *until)) return;
      mutex_.unlock();
      goes_on = simulation->Sleep(until);
      mutex_.lock();
    }
  }
  for (;;) {
    while (!called_ && !expected_) {
      if (!until) {
        changed_.Wait(mutex_);
      } else if (!changed_.WaitUntil(mutex_, *until) && !called_ && !expected_) {
        return;
      }
    }
    if (called_) return;
    expected_ = false;
    const PollPermit permit;
    if (!permit.granted()) continue;
    mutex_.unlock();
    const auto start = StreamClock::now();
    while (!called_ && StreamClock::now() - start < kPatience) std::this_thread::yield();
    mutex_.lock();
  }
}

}  // namespace qtts
