// SPDX-License-Identifier: LGPL-2.1-or-later
// Clang accepts this file, and refuses it if one of the macros is defined; see check-thread-safety.
#include "qtts/mutex.h"

namespace {

class Counter {
 public:
  void Add() {
    {
      const qtts::MutexLock lock(mutex_);
      AddLocked();
    }
    changed_.NotifyAll();
#ifdef CALLS_WITHOUT_LOCK
    AddLocked();
#endif
#ifdef WRITES_WITHOUT_LOCK
    count_ = 0;
#endif
#ifdef KEEPS_THE_LOCK
    mutex_.lock();
#endif
  }

  int Await(int least) {
#ifdef WAITS_WITHOUT_LOCK
    changed_.Wait(mutex_);
#endif
    qtts::MutexLock lock(mutex_);
    while (count_ < least) changed_.Wait(mutex_);
    lock.Unlock();
#ifdef READS_AFTER_UNLOCK
    if (count_ > least) return count_;
#endif
    lock.Lock();
    const auto twice = [this] {
      mutex_.AssertHeld();
      return 2 * count_;
    };
    return twice();
  }

#ifdef READS_WITHOUT_LOCK
  int count() const { return count_; }
#endif

 private:
  void AddLocked() QTTS_REQUIRES(mutex_) { ++count_; }

  qtts::Mutex mutex_;
  qtts::Condition changed_;
  int count_ QTTS_GUARDED_BY(mutex_) = 0;
};

}  // namespace

int main() {
  Counter counter;
  counter.Add();
  return counter.Await(1) - 2;
}
