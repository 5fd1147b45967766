// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <new>
#include <thread>
#include <vector>

namespace qtts::cpu {
namespace {

constexpr int64_t kMuchWork = int64_t{1} << 40;

class ThreadPoolTest : public testing::TestWithParam<int> {};

// Check: 54
TEST_P(ThreadPoolTest, CoversEveryIndexOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.threads(), GetParam());
  for (const int64_t count : {0, 1, 2, 7, 8, 9, 100, 1000}) {
    for (const int64_t grain : {1, 3, 8, 64}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
      pool.ParallelFor(count, grain, kMuchWork, [&](int64_t begin, int64_t end) {
        ASSERT_LT(begin, end);
        ASSERT_EQ(begin % grain, 0);
        for (int64_t i = begin; i < end; ++i) seen[static_cast<size_t>(i)].fetch_add(1);
      });
      for (const auto& times : seen) ASSERT_EQ(times.load(), 1);
    }
  }
}

// The caller sees all writes of a loop, and a loop ends before the next one begins, for any timing of the threads.
TEST_P(ThreadPoolTest, LoopsFollowEachOther) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> values(64);
  for (int round = 0; round < 3000; ++round) {
    pool.ParallelFor(64, 1, kMuchWork, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) values[static_cast<size_t>(i)] += i + round;
    });
    if (round % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  for (int64_t i = 0; i < 64; ++i) EXPECT_EQ(values[static_cast<size_t>(i)], 3000 * i + 3000 * 2999 / 2);
}

TEST_P(ThreadPoolTest, ThrowsWhatABodyThrew) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 100; ++round) {
    EXPECT_THROW(pool.ParallelFor(100, 1, kMuchWork,
                                  [&](int64_t begin, int64_t end) {
                                    if (begin <= 50 && 50 < end) throw std::bad_alloc();
                                  }),
                 std::bad_alloc);
    // The pool still works.
    std::atomic<int64_t> sum{0};
    pool.ParallelFor(100, 1, kMuchWork, [&](int64_t begin, int64_t end) { sum += end - begin; });
    ASSERT_EQ(sum.load(), 100);
  }
}

// Far more threads than processors; in each loop some of them sleep. A loop that waits for the system's scheduler takes
// milliseconds: if most did, the test would take minutes.
// Check: 54
TEST_P(ThreadPoolTest, BesidePoolsThatAreBusyLoopsEnd) {
  constexpr int kPools = 4;
  constexpr int kLoops = 2000;
  std::vector<std::thread> owners;
  std::atomic<int64_t> sum{0};
  for (int p = 0; p < kPools; ++p) {
    owners.emplace_back([&] {
      ThreadPool pool(GetParam());
      for (int i = 0; i < kLoops; ++i) {
        pool.ParallelFor(100, 1, kMuchWork, [&](int64_t first, int64_t end) { sum += end - first; });
      }
    });
  }
  for (std::thread& owner : owners) owner.join();
  EXPECT_EQ(sum.load(), int64_t{kPools} * kLoops * 100);
}

TEST_P(ThreadPoolTest, GetsSmallerAndLargerAgain) {
  ThreadPool pool(GetParam());
  for (const int threads : {GetParam(), 1, GetParam(), (GetParam() + 1) / 2, GetParam()}) {
    pool.Resize(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int i = 0; i < 100; ++i) {
      std::atomic<int64_t> sum{0};
      pool.ParallelFor(100, 3, kMuchWork, [&](int64_t begin, int64_t end) { sum += end - begin; });
      ASSERT_EQ(sum.load(), 100);
    }
  }
}

TEST_P(ThreadPoolTest, SmallLoopsRunInTheCaller) {
  ThreadPool pool(GetParam());
  const std::thread::id caller = std::this_thread::get_id();
  int calls = 0;
  pool.ParallelFor(100, 1, 10, [&](int64_t begin, int64_t end) {
    ++calls;
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(end, 100);
  });
  EXPECT_EQ(calls, 1);
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 8));

TEST(ThreadPoolTest, SharesTheWork) {
  ThreadPool pool(2);
  std::atomic<int> inside{0};
  // Both parts wait for each other, so one thread alone cannot finish.
  pool.ParallelFor(2, 1, kMuchWork, [&](int64_t, int64_t) {
    inside.fetch_add(1);
    while (inside.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(inside.load(), 2);
}

// Other threads take over the rest of its share.
// Check: 54
TEST(ThreadPoolTest, AThreadThatIsHeldUpHoldsUpItsPartOnly) {
  constexpr int64_t kCount = 64;
  ThreadPool pool(2);
  const std::thread::id caller = std::this_thread::get_id();
  for (int round = 0; round < 100; ++round) {
    std::atomic<int64_t> done{0};
    std::atomic<bool> held_up{false};
    pool.ParallelFor(kCount, 1, kMuchWork, [&](int64_t begin, int64_t end) {
      if (std::this_thread::get_id() == caller) {
        while (begin == 0 && !held_up.load()) std::this_thread::yield();  // the other has begun
      } else {
        held_up.store(true);
        while (done.load() < kCount - (end - begin)) std::this_thread::yield();
      }
      done += end - begin;
    });
    ASSERT_EQ(done.load(), kCount);
  }
}

// More than 2^32 indices are cut into few parts.
TEST(ThreadPoolTest, AnyCount) {
  ThreadPool pool(2);
  constexpr int64_t kCount = (int64_t{1} << 40) + 1;
  std::atomic<int64_t> sum{0};
  std::atomic<int64_t> last{0};
  pool.ParallelFor(kCount, 1, kMuchWork, [&](int64_t begin, int64_t end) {
    sum += end - begin;
    if (end == kCount) last = begin;
  });
  EXPECT_EQ(sum.load(), kCount);
  EXPECT_GT(last.load(), 0);
}

}  // namespace
}  // namespace qtts::cpu
