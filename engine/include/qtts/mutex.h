// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_MUTEX_H_
#define QTTS_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

// Mutexes with annotations for Clang's thread-safety analysis (-Wthread-safety); libstdc++'s have none. Rule for engine
// and element: every mutex is a qtts::Mutex, every member it guards has QTTS_GUARDED_BY(mutex), every function called
// with it held has QTTS_REQUIRES(mutex). Clang then rejects access to such a member without the lock. Other compilers
// ignore the annotations.
//
// The analysis covers one function at a time, and a lambda is a function of its own. Wait for a condition in a loop,
// not with a predicate, and begin a lambda that runs with the mutex held with AssertHeld().
#if defined(__clang__)
#define QTTS_THREAD_ANNOTATION_(annotation) __attribute__((annotation))
#else
#define QTTS_THREAD_ANNOTATION_(annotation)
#endif
// The member may be accessed only with the mutex held.
#define QTTS_GUARDED_BY(mutex) QTTS_THREAD_ANNOTATION_(guarded_by(mutex))
// The same for the object that the member, a pointer, points to.
#define QTTS_PT_GUARDED_BY(mutex) QTTS_THREAD_ANNOTATION_(pt_guarded_by(mutex))
// The mutex is held on entry and on return.
#define QTTS_REQUIRES(...) QTTS_THREAD_ANNOTATION_(requires_capability(__VA_ARGS__))
// The mutex is not held on entry: the function locks it.
#define QTTS_EXCLUDES(...) QTTS_THREAD_ANNOTATION_(locks_excluded(__VA_ARGS__))
// For lock types and their functions.
#define QTTS_CAPABILITY(name) QTTS_THREAD_ANNOTATION_(capability(name))
#define QTTS_SCOPED_CAPABILITY QTTS_THREAD_ANNOTATION_(scoped_lockable)
#define QTTS_ACQUIRE(...) QTTS_THREAD_ANNOTATION_(acquire_capability(__VA_ARGS__))
#define QTTS_RELEASE(...) QTTS_THREAD_ANNOTATION_(release_capability(__VA_ARGS__))
#define QTTS_ASSERT_HELD(...) QTTS_THREAD_ANNOTATION_(assert_capability(__VA_ARGS__))

namespace qtts {

// A std::mutex.
class QTTS_CAPABILITY("mutex") Mutex {
 public:
  void lock() QTTS_ACQUIRE() { mutex_.lock(); }
  void unlock() QTTS_RELEASE() { mutex_.unlock(); }

  // Tells the analysis that the mutex is held if it cannot see that. Checks nothing.
  void AssertHeld() const QTTS_ASSERT_HELD() {}

 private:
  friend class Condition;
  std::mutex mutex_;
};

// Holds a mutex during its lifetime, except between Unlock() and Lock(). Like std::unique_lock.
class QTTS_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) QTTS_ACQUIRE(mutex) : mutex_(mutex) { Lock(); }
  ~MutexLock() QTTS_RELEASE() {
    if (held_) mutex_.unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void Lock() QTTS_ACQUIRE() {
    mutex_.lock();
    held_ = true;
  }
  void Unlock() QTTS_RELEASE() {
    held_ = false;
    mutex_.unlock();
  }

 private:
  Mutex& mutex_;
  bool held_ = false;
};

// Releases a held mutex during its lifetime.
class QTTS_SCOPED_CAPABILITY MutexUnlock {
 public:
  explicit MutexUnlock(Mutex& mutex) QTTS_RELEASE(mutex) : mutex_(mutex) { mutex_.unlock(); }
  ~MutexUnlock() QTTS_RELEASE() { mutex_.lock(); }
  MutexUnlock(const MutexUnlock&) = delete;
  MutexUnlock& operator=(const MutexUnlock&) = delete;

 private:
  Mutex& mutex_;
};

// A std::condition_variable. Spurious wakeups happen, so wait in a loop:
//
//   MutexLock lock(mutex_);
//   while (queue_.empty()) changed_.Wait(mutex_);
class Condition {
 public:
  void Wait(Mutex& mutex) QTTS_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // Returns false on timeout.
  template <typename Clock, typename Duration>
  bool WaitUntil(Mutex& mutex, const std::chrono::time_point<Clock, Duration>& time) QTTS_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const std::cv_status status = condition_.wait_until(lock, time);
    lock.release();
    return status == std::cv_status::no_timeout;
  }
  // Returns false on timeout.
  template <typename Rep, typename Period>
  bool WaitFor(Mutex& mutex, const std::chrono::duration<Rep, Period>& duration) QTTS_REQUIRES(mutex) {
    return WaitUntil(mutex, std::chrono::steady_clock::now() + duration);
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace qtts

#endif  // QTTS_MUTEX_H_
