// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/thread_pool.h"

#include <algorithm>
#include <utility>

#include "qtts/resources.h"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace qtts::cpu {
namespace {

// Multiply-adds below which one thread is faster: some 10 us of work.
constexpr int64_t kWorkWorthSharing = 400'000;

// Looks at a flag this often before sleeping: about the time between two loops of one frame.
constexpr int kSpins = 2000;

// Parts a thread gets on average, so that a thread that is held up is made up for by the others.
constexpr int64_t kPartsPerThread = 4;

constexpr int32_t kClosed = -1;

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#endif
}

// Waits until `flag` differs from `old`.
template <typename T>
void WaitWhile(const std::atomic<T>& flag, T old) {
  for (int i = 0; i < kSpins; ++i) {
    if (flag.load(std::memory_order_acquire) != old) return;
    Pause();
  }
  flag.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int threads) : inside_(kClosed) {
  try {
    for (int i = 1; i < threads; ++i)
      workers_.emplace_back([this] {
        BeginThread();
        Work();
      });
  } catch (...) {
    Stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { Stop(); }

void ThreadPool::Stop() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::ParallelFor(int64_t count, int64_t grain, int64_t work,
                             const std::function<void(int64_t, int64_t)>& body) {
  if (count <= 0) return;
  if (workers_.empty() || count <= grain || work < kWorkWorthSharing) {
    body(0, count);
    return;
  }
  body_ = &body;
  count_ = count;
  const int64_t grains = (count + grain - 1) / grain;
  const int64_t parts = std::min<int64_t>(grains, threads() * kPartsPerThread);
  part_ = (grains + parts - 1) / parts * grain;
  next_.store(0, std::memory_order_relaxed);
  inside_.store(0, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  RunParts();
  int32_t inside = 0;
  while (!inside_.compare_exchange_strong(inside, kClosed, std::memory_order_acq_rel)) {
    WaitWhile(inside_, inside);
    inside = 0;
  }
  if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::RunParts() noexcept {
  try {
    while (true) {
      const int64_t begin = next_.fetch_add(part_, std::memory_order_relaxed);
      if (begin >= count_) return;
      (*body_)(begin, std::min(begin + part_, count_));
    }
  } catch (...) {
    next_.store(count_, std::memory_order_relaxed);
    const std::lock_guard lock(error_mutex_);
    if (error_ == nullptr) error_ = std::current_exception();
  }
}

void ThreadPool::Work() {
  uint32_t seen = 0;
  while (true) {
    WaitWhile(generation_, seen);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    int32_t inside = inside_.load(std::memory_order_relaxed);
    while (inside != kClosed && !inside_.compare_exchange_weak(inside, inside + 1, std::memory_order_acq_rel)) {
    }
    if (inside == kClosed) continue;
    RunParts();
    inside_.fetch_sub(1, std::memory_order_acq_rel);
    inside_.notify_one();
  }
}

}  // namespace qtts::cpu
