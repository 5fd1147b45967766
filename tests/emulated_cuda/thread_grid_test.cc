// SPDX-License-Identifier: LGPL-2.1-or-later
#include "thread_grid.h"

#include <gtest/gtest.h>

#include <vector>

#include "cuda_device.h"
#include "runtime/instructions.cuh"

namespace qtts::emulated {
namespace {

TEST(ThreadGridTest, ThreadsOfAWarpExchangeValues) {
  std::vector<int> sums(128);
  RunGrid(2, 64, 0, [&] {
    const int thread = static_cast<int>(blockIdx.x * 64 + threadIdx.x);
    int sum = thread;
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0U, sum, offset);
    sums[static_cast<size_t>(thread)] = sum;
  });
  for (int thread = 0; thread < 128; ++thread) {
    EXPECT_EQ(sums[static_cast<size_t>(thread)], thread / 32 * 32 * 32 + 31 * 16);
  }
}

TEST(ThreadGridTest, BlocksWaitForWordsOfOthers) {
  std::vector<unsigned> words(4);
  words[0] = 1;
  RunGrid(4, 32, 0, [&] {
    const unsigned block = blockIdx.x;
    // Block 2 waits for the last, block 1 for block 2.
    const unsigned other = block == 0 ? 0 : block == 3 ? 0 : block + 1;
    while (block > 0 && *static_cast<volatile unsigned*>(&words[other]) == 0) Poll(Place::current());
    if (threadIdx.x == 0) {
      words[block] = words[other] + (block > 0 ? 1 : 0);
      Changed();
    }
  });
  EXPECT_EQ(words, (std::vector<unsigned>{1, 4, 3, 2}));
}

TEST(ThreadGridTest, BarriersSeeAllThreads) {
  int seen = 0;
  RunGrid(1, 64, sizeof(int), [&] {
    auto* const shared = reinterpret_cast<int*>(SharedMemory());
    if (threadIdx.x == 63) *shared = 7;
    const bool any = AwaitBarrier(1, 64, threadIdx.x == 5, Place::current());
    if (threadIdx.x == 0 && any) seen = *shared;
  });
  EXPECT_EQ(seen, 7);
}

// c[row][column] = sum over k of a[row][k] b[k][column], a[row][k] = row == k, b[k][column] = k + column.
TEST(ThreadGridTest, TheMatrixInstructionHasTheLanesOfADevice) {
  using cuda::LeftFragment, cuda::RightFragment, cuda::SumFragment;
  float results[SumFragment::kRows][SumFragment::kColumns] = {};
  RunGrid(1, 32, 0, [&] {
    const int lane = Lane();
    const auto pair = [](float first, float second) {
      return __float_as_uint(first) >> 16 | (__float_as_uint(second) & 0xFFFF0000U);
    };
    uint32_t a[LeftFragment::kWords], b[RightFragment::kWords];
    for (int word = 0; word < LeftFragment::kWords; ++word) {
      const int row = LeftFragment::Row(lane, word), column = LeftFragment::Column(lane, word);
      a[word] = pair(row == column ? 1 : 0, row == column + 1 ? 1 : 0);
    }
    for (int word = 0; word < RightFragment::kWords; ++word) {
      const auto first = static_cast<float>(RightFragment::Row(lane, word) + RightFragment::Column(lane));
      b[word] = pair(first, first + 1);
    }
    float sums[SumFragment::kOfLane] = {};
    cuda::Mma(sums, a[0], a[1], a[2], a[3], b[0], b[1]);
    for (int i = 0; i < SumFragment::kOfLane; ++i) {
      results[SumFragment::Row(lane, i)][SumFragment::Column(lane, i)] = sums[i];
    }
  });
  for (int row = 0; row < SumFragment::kRows; ++row) {
    for (int column = 0; column < SumFragment::kColumns; ++column) {
      EXPECT_EQ(results[row][column], static_cast<float>(row + column)) << row << ", " << column;
    }
  }
}

TEST(ThreadGridDeathTest, ThreadsOfAWarpThatPart) {
  const auto part = [] {
    if (threadIdx.x < 8) {
      __syncwarp();
    } else {
      __shfl_sync(~0U, 1, 0);
    }
  };
  EXPECT_DEATH(RunGrid(1, 32, 0, part), "meet at different places");
}

TEST(ThreadGridDeathTest, ThreadsThatReturnBeforeAnExchange) {
  EXPECT_DEATH(RunGrid(1, 32, 0,
                       [] {
                         if (threadIdx.x == 31) return;
                         __syncwarp();
                       }),
               "have returned");
}

TEST(ThreadGridDeathTest, AGridThatIsStuck) {
  EXPECT_DEATH(RunGrid(2, 32, 0,
                       [] {
                         if (blockIdx.x == 1) AwaitBarrier(1, 64, false, Place::current());
                       }),
               "no thread can go on");
}

}  // namespace
}  // namespace qtts::emulated
