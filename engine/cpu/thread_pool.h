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

// Unit of ParallelFor()'s `work`: one multiply-add of an F32 matrix product with operands in cache. A thread does about
// this many per nanosecond.
inline constexpr int64_t kWorkPerNanosecond = 40;

// Returns the work of reading `bytes` of weights once, which bounds a one-row product: 40 GB/s per thread, the rate of
// a cache. Reads from memory are slower, but are far above the sharing limits in any case.
constexpr int64_t WorkOfReading(int64_t bytes) { return bytes * kWorkPerNanosecond / 40; }

// Runs one parallel loop at a time on a fixed set of threads, including the caller's. Each thread first runs its own
// share of the loop, the same share in every loop of that size, then steals from the others. A preempted thread thus
// delays only the part that it is running.
//
// Between loops a thread polls for about 50 us, then sleeps. It sleeps at once if the pool has more threads than the
// process has CPUs, and stops polling if another thread needs its CPU.
//
// Owned and called by one thread. Only loop bodies run on other threads.
class ThreadPool {
 public:
  // `threads`: total, including the caller; at least 1. Throws what std::thread throws.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_.load(std::memory_order_relaxed); }

  // Changes the number of threads: from 1 to the number given to the constructor. Throws what std::thread throws; the
  // pool then has fewer threads.
  void Resize(int threads);

  // Calls body(begin, end) on disjoint ranges that cover [0, count), each starting at a multiple of `grain`. Returns
  // when all are done. `work` is that of the whole loop: small loops run in the calling thread. Bodies must not call
  // the pool. The first exception of a body is rethrown here after all running parts have returned; parts that have not
  // started by then are skipped.
  template <typename Body>
  void ParallelFor(int64_t count, int64_t grain, int64_t work, const Body& body) {
    if (count <= 0) return;
    if (count <= grain || !WorthSharing(work)) {
      body(int64_t{0}, count);
      return;
    }
    ShareLoop(
        count, grain,
        [](const void* function, int64_t begin, int64_t end) { (*static_cast<const Body*>(function))(begin, end); },
        &body);
  }

 private:
  // Data written by different threads is kept on separate cache lines.
  static constexpr size_t kCacheLine = 64;
  // The grains [begin, end) of a thread's share that are not taken yet.
  struct alignas(kCacheLine) Range {
    std::atomic<uint64_t> bounds{0};
  };
  using Call = void (*)(const void* body, int64_t begin, int64_t end);

  bool WorthSharing(int64_t work) const;
  void ShareLoop(int64_t count, int64_t grain, Call call, const void* body);
  void StopWorkers(int threads);
  void RunWorker(int thread);
  // Runs parts until none is left: first of the thread's own share, then of the others'.
  void RunParts(int thread) noexcept;
  void RunPart(int64_t begin, int64_t end) noexcept;

  std::vector<std::thread> workers_;
  std::unique_ptr<Range[]> ranges_;  // one per thread

  // The current loop. The owner writes it while all ranges are empty. A thread reads it after taking a part, which
  // keeps the loop from ending.
  Call call_ = nullptr;
  const void* body_ = nullptr;
  int64_t count_ = 0;
  int64_t grain_ = 0;
  Mutex error_mutex_;
  std::exception_ptr error_ QTTS_GUARDED_BY(error_mutex_);
  std::atomic<bool> failed_{false};

  alignas(kCacheLine) std::atomic<uint32_t> generation_{0};  // number of loops so far; workers wait for it to change
  std::atomic<int> threads_{1};
  std::atomic<bool> oversubscribed_{false};           // more threads than CPUs
  alignas(kCacheLine) std::atomic<int> sleepers_{0};  // workers that sleep or are about to
  alignas(kCacheLine) std::atomic<uint32_t> pending_{0};
};

}  // namespace qtts::cpu

#endif  // QTTS_CPU_THREAD_POOL_H_
