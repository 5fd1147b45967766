// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <utility>

#include "cpu/processors.h"
#include "qtts/resources.h"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace qtts::cpu {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::nanoseconds;

// Minimum work of a shared loop: while the other threads poll, and while some sleep and must be woken. Measured on 2
// virtual cores of an AMD EPYC: an empty loop takes 0.1 to 0.5 us with 2 polling threads; a sleeping thread starts
// about 50 us later. Beside other work a shared loop may also wait for a preempted thread, so the limits are higher
// than the costs.
constexpr int64_t kWorthSharing = nanoseconds(microseconds(10)).count() * kWorkPerNanosecond;
constexpr int64_t kWorthWaking = nanoseconds(microseconds(20)).count() * kWorkPerNanosecond;

// Polling time before a thread sleeps: longer than nearly all gaps between the loops of a frame.
constexpr nanoseconds kPoll = microseconds(50);
// Time after which a polling thread yields its CPU to waiting threads.
constexpr nanoseconds kYieldAfter = microseconds(5);
// A sched_yield() that takes longer than this ran another thread.
constexpr nanoseconds kIdleYield = microseconds(10);
// Polls between two reads of the clock.
constexpr int kPollsPerClockRead = 32;

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // takes as long as x86 pause; `yield` is a no-op on most CPUs
#endif
}

// Polls until ready(). Returns false if polling has become a waste of CPU time.
template <typename Ready>
bool Poll(const Ready& ready) {
  const Clock::time_point begin = Clock::now();
  while (true) {
    for (int i = 0; i < kPollsPerClockRead; ++i) {
      if (ready()) return true;
      Pause();
    }
    const Clock::time_point now = Clock::now();
    if (now - begin >= kPoll) return false;
    if (now - begin < kYieldAfter) continue;
    sched_yield();
    if (Clock::now() - now > kIdleYield) return ready();
  }
}

constexpr uint64_t Bounds(uint32_t begin, uint32_t end) { return uint64_t{end} << 32U | begin; }
constexpr uint32_t BeginOf(uint64_t bounds) { return static_cast<uint32_t>(bounds); }
constexpr uint32_t EndOf(uint64_t bounds) { return static_cast<uint32_t>(bounds >> 32U); }

struct Part {
  uint32_t begin = 0;
  uint32_t end = 0;
};

// Takes half of the remaining grains, so that parts get smaller and all threads finish together.
std::optional<Part> TakeHalf(std::atomic<uint64_t>* range) {
  uint64_t bounds = range->load(std::memory_order_relaxed);
  while (BeginOf(bounds) < EndOf(bounds)) {
    const uint32_t begin = BeginOf(bounds);
    const uint32_t end = EndOf(bounds);
    const uint32_t part_end = begin + (end - begin + 1) / 2;
    // Acquire: the owner's writes of the loop become visible before the range's.
    if (range->compare_exchange_weak(bounds, Bounds(part_end, end), std::memory_order_acquire,
                                     std::memory_order_relaxed)) {
      return Part{begin, part_end};
    }
  }
  return std::nullopt;
}

}  // namespace

ThreadPool::ThreadPool(int threads) : ranges_(std::make_unique<Range[]>(static_cast<size_t>(threads))) {
  try {
    Resize(threads);
  } catch (...) {
    StopWorkers(1);
    throw;
  }
}

ThreadPool::~ThreadPool() { StopWorkers(1); }

void ThreadPool::StopWorkers(int threads) {
  threads_.store(threads, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  while (static_cast<int>(workers_.size()) >= threads) {
    workers_.back().join();
    workers_.pop_back();
  }
}

void ThreadPool::Resize(int threads) {
  if (threads < this->threads()) StopWorkers(threads);
  workers_.reserve(static_cast<size_t>(threads));
  oversubscribed_.store(threads > 1 && threads > AllowedProcessors(), std::memory_order_relaxed);
  while (this->threads() < threads) {
    const int next = this->threads();
    threads_.store(next + 1, std::memory_order_relaxed);
    try {
      workers_.emplace_back([this, next] {
        BeginThread();
        RunWorker(next);
      });
    } catch (...) {
      threads_.store(next, std::memory_order_relaxed);
      throw;
    }
  }
}

bool ThreadPool::WorthSharing(int64_t work) const {
  if (workers_.empty() || work < kWorthSharing) return false;
  return work >= kWorthWaking || sleepers_.load(std::memory_order_relaxed) == 0;
}

void ThreadPool::ShareLoop(int64_t count, int64_t grain, Call call, const void* body) {
  // Grains are counted in 32 bits.
  while ((count + grain - 1) / grain > std::numeric_limits<uint32_t>::max()) grain *= 2;
  const int64_t grains = (count + grain - 1) / grain;
  call_ = call;
  body_ = body;
  count_ = count;
  grain_ = grain;
  failed_.store(false, std::memory_order_relaxed);
  pending_.store(static_cast<uint32_t>(grains), std::memory_order_relaxed);
  const int64_t shares = threads();
  for (int64_t i = 0; i < shares; ++i) {
    const auto begin = static_cast<uint32_t>(grains * i / shares);
    const auto end = static_cast<uint32_t>(grains * (i + 1) / shares);
    ranges_[static_cast<size_t>(i)].bounds.store(Bounds(begin, end), std::memory_order_release);
  }
  // A worker about to sleep either sees the new generation or is counted in sleepers_ and woken here.
  generation_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) generation_.notify_all();
  RunParts(0);
  while (true) {
    if (Poll([this] { return pending_.load(std::memory_order_acquire) == 0; })) break;
    const uint32_t pending = pending_.load(std::memory_order_acquire);
    if (pending == 0) break;
    pending_.wait(pending, std::memory_order_acquire);
  }
  if (failed_.load(std::memory_order_relaxed)) {
    const MutexLock lock(error_mutex_);
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
}

void ThreadPool::RunParts(int thread) noexcept {
  const int shares = threads();
  uint32_t done = 0;
  for (int i = 0; i < shares; ++i) {
    Range& range = ranges_[static_cast<size_t>((thread + i) % shares)];
    while (const std::optional<Part> part = TakeHalf(&range.bounds)) {
      RunPart(part->begin * grain_, std::min(part->end * grain_, count_));
      done += part->end - part->begin;
    }
  }
  // The loop may end here, so its members must not be accessed any more.
  if (done > 0 && pending_.fetch_sub(done, std::memory_order_acq_rel) == done && thread != 0) pending_.notify_one();
}

void ThreadPool::RunPart(int64_t begin, int64_t end) noexcept {
  if (failed_.load(std::memory_order_relaxed)) return;
  try {
    call_(body_, begin, end);
  } catch (...) {
    const MutexLock lock(error_mutex_);
    if (failed_.load(std::memory_order_relaxed)) return;
    error_ = std::current_exception();
    failed_.store(true, std::memory_order_relaxed);
  }
}

void ThreadPool::RunWorker(int thread) {
  uint32_t seen = 0;
  const auto changed = [&] { return generation_.load(std::memory_order_acquire) != seen; };
  while (true) {
    if (oversubscribed_.load(std::memory_order_relaxed) ? !changed() : !Poll(changed)) {
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      generation_.wait(seen, std::memory_order_seq_cst);
      sleepers_.fetch_sub(1, std::memory_order_relaxed);
    }
    seen = generation_.load(std::memory_order_acquire);
    if (thread >= threads()) return;
    RunParts(thread);
  }
}

}  // namespace qtts::cpu
