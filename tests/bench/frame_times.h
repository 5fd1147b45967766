// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_BENCH_FRAME_TIMES_H_
#define QTTS_TESTS_BENCH_FRAME_TIMES_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>

namespace qtts::bench {

// When the first frames of a stream came, by the reports of the engine's thread. Shared by that thread, which calls
// Add(), and a reader that polls.
class FrameTimes {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kKept = 16;

  // The next frame came.
  void Add() {
    const size_t n = count_;
    if (n < kKept) at_[n] = Clock::now().time_since_epoch().count();
    count_ = n + 1;
  }
  // Returns the time of frame `frame` < kKept, which was read. The engine reports a frame right after it can be read:
  // an early reader waits here.
  Clock::time_point Of(size_t frame) const {
    while (count_ <= frame) std::this_thread::yield();
    return Clock::time_point(Clock::duration(at_[frame]));
  }

 private:
  std::atomic<size_t> count_ = 0;
  std::array<std::atomic<Clock::rep>, kKept> at_ = {};
};

}  // namespace qtts::bench

#endif  // QTTS_TESTS_BENCH_FRAME_TIMES_H_
