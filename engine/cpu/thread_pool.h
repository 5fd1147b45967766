// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_THREAD_POOL_H_
#define QTTS_CPU_THREAD_POOL_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "qtts/mutex.h"

namespace qtts::cpu {

// The unit of ParallelFor()'s `work` is a multiply-add of an F32 matrix product whose operands lie in the cache: a
// thread makes about this many a nanosecond.
inline constexpr int64_t kWorkPerNanosecond = 40;

// The work of reading `bytes` of weights once, which bounds a product of a matrix and one row: at 40 GB/s a thread, as
// from a cache. What comes from memory takes longer and is far above the limits anyway.
constexpr int64_t WorkOfReading(int64_t bytes) { return bytes * kWorkPerNanosecond / 40; }

// Runs the parts of one loop at a time on a fixed set of threads, the caller's among them. Each thread begins with its
// own share of the loop, the same one in every loop of that size, and then helps the others with theirs: a thread that
// the system has taken off its processor holds up the part it is in, no other.
//
// Between loops a thread polls for some 50 us, then sleeps. It sleeps at once where it would poll in somebody's way:
// where the pool has more threads than processors, or others take the processor while it polls.
//
// Owned and called by one thread; only the loop bodies run elsewhere.
class ThreadPool {
 public:
  // `threads` in all, the caller included; at least 1. Throws what std::thread throws.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_.load(std::memory_order_relaxed); }

  // Ends or starts threads until there are `threads`: from 1 to the number with which the pool was made. Throws what
  // std::thread throws, and then has fewer.
  void Resize(int threads);

  // Calls body(begin, end) on disjoint ranges that cover [0, count), each beginning at a multiple of `grain`, and
  // returns when all are done. `work` is the whole loop's: small loops run in the caller, where sharing would cost more
  // than it gains. Bodies must not call the pool. The first exception of a body is thrown again here, when no part runs
  // any more; parts not begun by then are left out.
  template <typename Body>
  void ParallelFor(int64_t count, int64_t grain, int64_t work, const Body& body) {
    if (count <= 0) return;
    if (count <= grain || !WorthSharing(work)) {
      body(int64_t{0}, count);
      return;
    }
    Share(
        count, grain,
        [](const void* function, int64_t begin, int64_t end) { (*static_cast<const Body*>(function))(begin, end); },
        &body);
  }

 private:
  // Written by different threads: on cache lines of their own.
  static constexpr size_t kCacheLine = 64;
  // The grains [begin, end) of a thread's share that nobody has taken yet.
  struct alignas(kCacheLine) Range {
    std::atomic<uint64_t> bounds{0};
  };
  using Call = void (*)(const void* body, int64_t begin, int64_t end);

  bool WorthSharing(int64_t work) const;
  void Share(int64_t count, int64_t grain, Call call, const void* body);
  void End(int threads);
  void Work(int thread);
  // Takes parts until none is left: its own share's, then the others'.
  void RunParts(int thread) noexcept;
  void RunPart(int64_t begin, int64_t end) noexcept;

  std::vector<std::thread> workers_;
  std::unique_ptr<Range[]> ranges_;  // one a thread

  // The loop. Written by the owner while all ranges are empty; read by who took a part, which keeps it from ending.
  Call call_ = nullptr;
  const void* body_ = nullptr;
  int64_t count_ = 0;
  int64_t grain_ = 0;
  Mutex error_mutex_;
  std::exception_ptr error_ QTTS_GUARDED_BY(error_mutex_);
  std::atomic<bool> failed_{false};

  alignas(kCacheLine) std::atomic<uint32_t> generation_{0};  // counts loops, to wake workers
  std::atomic<int> threads_{1};
  std::atomic<bool> crowded_{false};                      // more threads than processors
  alignas(kCacheLine) std::atomic<int> sleepers_{0};      // workers asleep, or about to be
  alignas(kCacheLine) std::atomic<uint32_t> pending_{0};  // grains not done yet
};

}  // namespace qtts::cpu

#endif  // QTTS_CPU_THREAD_POOL_H_
