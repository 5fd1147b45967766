// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_THREAD_POOL_H_
#define QTTS_CPU_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace qtts::cpu {

// Runs the parts of one loop at a time on a fixed set of threads, the caller's among them. Idle
// threads wait a few microseconds for the next loop, then sleep.
//
// Owned and called by one thread; only the loop bodies run elsewhere.
class ThreadPool {
 public:
  // `threads` in all, the caller included; at least 1. Throws what std::thread throws.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(begin, end) on disjoint ranges that cover [0, count), each a multiple of `grain` long
  // but for the last, and returns when all are done. `work` is the whole loop's cost in
  // multiply-adds: small loops run in the caller, where waking others would cost more than it gains.
  // Bodies must not call the pool. The first exception of a body is thrown again here, when no part
  // runs any more; parts not begun by then are left out.
  void ParallelFor(int64_t count, int64_t grain, int64_t work, const std::function<void(int64_t, int64_t)>& body);

 private:
  void Stop();
  void Work();
  void RunParts() noexcept;

  std::vector<std::thread> workers_;

  // The loop being run: written by the owner while `inside_` is closed.
  const std::function<void(int64_t, int64_t)>* body_ = nullptr;
  int64_t count_ = 0;
  int64_t part_ = 0;              // length of a part
  std::atomic<int64_t> next_{0};  // first index not yet taken
  std::mutex error_mutex_;
  std::exception_ptr error_;  // under error_mutex_
  // Workers that run parts of the loop, or kClosed between loops. A worker that wakes too late finds
  // it closed and is not waited for.
  std::atomic<int32_t> inside_;
  std::atomic<uint32_t> generation_{0};  // counts loops, to wake workers
  std::atomic<bool> stop_{false};
};

}  // namespace qtts::cpu

#endif  // QTTS_CPU_THREAD_POOL_H_
