// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_GUARDED_H_
#define QTTS_TESTS_GUARDED_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace qtts {

// A value that threads share. There is no access without its mutex:
//
//   guarded->count = 3;                       // held to the end of the expression
//   const auto access = guarded.Lock();       // held while `access` lives, for more than one expression
//   EXPECT_EQ(guarded->count, access->count)  // the thread that holds it may lock it again
//
// A pointer, reference or iterator into the value must not outlive the access that it came from.
template <typename T>
class Guarded {
 public:
  class Access {
   public:
    explicit Access(Guarded& guarded) : guarded_(guarded), lock_(guarded.mutex_) {}
    T* operator->() const { return &guarded_.value_; }
    T& operator*() const { return guarded_.value_; }

    // Waits, without the mutex, until `condition` holds. The access must be the thread's only one.
    template <typename Condition>
    void Wait(const Condition& condition) {
      guarded_.changed_.wait(lock_, condition);
    }
    // Returns whether it holds in time.
    template <typename Condition>
    bool WaitFor(std::chrono::seconds limit, const Condition& condition) {
      return guarded_.changed_.wait_for(lock_, limit, condition);
    }
    // Lets those who wait look again.
    void NotifyAll() const { guarded_.changed_.notify_all(); }

   private:
    Guarded& guarded_;
    std::unique_lock<std::recursive_mutex> lock_;
  };

  Access operator->() { return Access(*this); }
  Access Lock() { return Access(*this); }

 private:
  std::recursive_mutex mutex_;
  std::condition_variable_any changed_;
  T value_;
};

}  // namespace qtts

#endif  // QTTS_TESTS_GUARDED_H_
