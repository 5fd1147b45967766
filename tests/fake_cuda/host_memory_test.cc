// SPDX-License-Identifier: LGPL-2.1-or-later
#include "runtime/host_memory.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <limits>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "fake_cuda/fake_cuda.h"
#include "sequences/parking_memory.h"

// The host's memory for parked utterances.
namespace qtts::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr size_t kMiB = size_t{1} << 20;

TEST(PresentMemoryTest, AllPagesAreThereAlignedAndZero) {
  const Result<PresentMemory> memory = PresentMemory::Allocate(5 * kMiB);
  ASSERT_TRUE(memory.ok()) << memory.status().message();
  EXPECT_EQ(memory->bytes(), 5 * kMiB);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % (2 * kMiB), 0U);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
  std::vector<unsigned char> present(memory->bytes() / page);
  ASSERT_EQ(mincore(memory->data(), memory->bytes(), present.data()), 0);
  EXPECT_TRUE(std::all_of(present.begin(), present.end(), [](unsigned char p) { return (p & 1U) != 0; }));
  const auto* const bytes = static_cast<const char*>(memory->data());
  EXPECT_TRUE(std::all_of(bytes, bytes + memory->bytes(), [](char byte) { return byte == 0; }));
}

TEST(PresentMemoryTest, NothingAndAsMuchAsCanBeMoved) {
  Result<PresentMemory> memory = PresentMemory::Allocate(0);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory->bytes(), static_cast<size_t>(sysconf(_SC_PAGE_SIZE)));
  void* const data = memory->data();
  PresentMemory other = std::move(*memory);
  EXPECT_EQ(other.data(), data);
  other = PresentMemory();
  EXPECT_EQ(other.data(), nullptr);
}

TEST(PresentMemoryTest, MoreThanTheHostHas) {
  for (const size_t bytes : {std::numeric_limits<size_t>::max(), std::numeric_limits<size_t>::max() / 4}) {
    EXPECT_EQ(PresentMemory::Allocate(bytes).status().code(), StatusCode::kResourceExhausted) << bytes;
  }
}

class LockedMemoryTest : public ::testing::Test {
 protected:
  LockedMemoryTest() { fake_cuda::Reset(); }
  ~LockedMemoryTest() override {
    EXPECT_EQ(fake_cuda::alive(), 0U);
    EXPECT_THAT(fake_cuda::misuse(), IsEmpty());
    fake_cuda::Reset();
  }
  static Result<LockedMemory> Lock() {
    Result<PresentMemory> memory = PresentMemory::Allocate(1);
    if (!memory.ok()) return memory.status();
    return LockedMemory::Lock(std::move(*memory));
  }
};

TEST_F(LockedMemoryTest, PresentMemoryIsLockedInItsPlace) {
  Result<PresentMemory> memory = PresentMemory::Allocate(1);
  ASSERT_TRUE(memory.ok());
  void* const data = memory->data();
  Result<LockedMemory> locked = LockedMemory::Lock(std::move(*memory));
  ASSERT_TRUE(locked.ok()) << locked.status().message();
  EXPECT_EQ(locked->data(), data);
  EXPECT_THAT(fake_cuda::calls(), ElementsAre("cudaHostRegister"));
  EXPECT_EQ(fake_cuda::alive(), 1U);
  // The first is unlocked once.
  LockedMemory other = std::move(*locked);
  const Result<LockedMemory> second = Lock();
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(fake_cuda::alive(), 2U);
}

TEST_F(LockedMemoryTest, WhereItCannotBeLockedTheDriversIsTaken) {
  fake_cuda::FailCall(1, cudaErrorNotSupported, false);
  const Result<LockedMemory> locked = Lock();
  ASSERT_TRUE(locked.ok()) << locked.status().message();
  EXPECT_NE(locked->data(), nullptr);
  EXPECT_THAT(fake_cuda::calls(), ElementsAre("cudaHostRegister", "cudaHostAlloc"));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(LockedMemoryTest, NeitherCanBeLocked) {
  fake_cuda::FailCall(1, cudaErrorMemoryAllocation, true);
  EXPECT_EQ(Lock().status().code(), StatusCode::kResourceExhausted);
  fake_cuda::Reset();
}

TEST_F(LockedMemoryTest, ALostDevice) {
  fake_cuda::FailCall(1, cudaErrorIllegalAddress, false);
  EXPECT_EQ(Lock().status().code(), StatusCode::kDeviceUnavailable);
  EXPECT_THAT(fake_cuda::calls(), ElementsAre("cudaHostRegister"));
}

// With and without the thread that makes blocks ready.
class ParkingMemoryTest : public LockedMemoryTest, public ::testing::WithParamInterface<bool> {};

TEST_P(ParkingMemoryTest, AsManyBlocksAsTheLimitHolds) {
  for (const size_t blocks : {0, 1, 2, 7, 100}) {
    ParkingMemory memory(2 * kMiB, blocks * 2 * kMiB + kMiB);
    if (GetParam()) {
      memory.Start();
      memory.Start();
    }
    std::vector<LockedMemory> taken;
    std::set<void*> places;
    for (size_t i = 0; i < blocks; ++i) {
      Result<LockedMemory> block = memory.Take();
      ASSERT_TRUE(block.ok()) << block.status().message();
      places.insert(block->data());
      taken.push_back(std::move(*block));
    }
    EXPECT_EQ(places.size(), blocks);
    EXPECT_EQ(memory.Take().status().code(), StatusCode::kResourceExhausted);
  }
}

TEST_P(ParkingMemoryTest, AHostWithoutMemory) {
  const size_t bytes = std::numeric_limits<size_t>::max() / 4;
  ParkingMemory memory(bytes, std::numeric_limits<size_t>::max());
  if (GetParam()) memory.Start();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(memory.Take().status().code(), StatusCode::kResourceExhausted);
}

TEST_P(ParkingMemoryTest, WhatCouldNotBeLockedIsNotCounted) {
  ParkingMemory memory(2 * kMiB, 4 * kMiB);
  if (GetParam()) memory.Start();
  fake_cuda::FailCall(1, cudaErrorMemoryAllocation, true);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(memory.Take().status().code(), StatusCode::kResourceExhausted);
  fake_cuda::Reset();
  const Result<LockedMemory> first = memory.Take();
  ASSERT_TRUE(first.ok()) << first.status().message();
  const Result<LockedMemory> second = memory.Take();
  ASSERT_TRUE(second.ok()) << second.status().message();
  EXPECT_NE(first->data(), second->data());
  EXPECT_FALSE(memory.Take().ok());
}

// Allows the process `more` bytes of addresses beyond those that it has.
class LimitedAddresses {
 public:
  explicit LimitedAddresses(size_t more) {
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    EXPECT_EQ(getrlimit(RLIMIT_AS, &before_), 0);
    const rlimit limit = {pages * static_cast<size_t>(sysconf(_SC_PAGE_SIZE)) + more, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  }
  ~LimitedAddresses() { EXPECT_EQ(setrlimit(RLIMIT_AS, &before_), 0); }
  LimitedAddresses(const LimitedAddresses&) = delete;
  LimitedAddresses& operator=(const LimitedAddresses&) = delete;

 private:
  rlimit before_ = {};
};

bool Comes(const std::function<bool()>& condition) {
  for (int i = 0; i < 60000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return condition();
}

TEST_F(LockedMemoryTest, TheThreadGoesOnOnceThereIsMemoryAgain) {
  constexpr size_t kBlock = 64 * kMiB;
  ParkingMemory memory(kBlock, kBlock);
  {
    // Room for the thread's stack, not for a block.
    const LimitedAddresses limited(kBlock / 2);
    memory.Start();
    EXPECT_TRUE(Comes([&] { return memory.lacking(); }));
    EXPECT_EQ(memory.Take().status().code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(memory.ready(), 0U);
  }
  EXPECT_TRUE(Comes([&] { return memory.ready() == 1; }));
  EXPECT_TRUE(memory.Take().ok());
}

TEST_F(LockedMemoryTest, AThreadThatCouldNotBeStartedIsStartedLater) {
  ParkingMemory memory(2 * kMiB, 2 * kMiB);
  {
    const LimitedAddresses limited(kMiB);
    memory.Start();
  }
  EXPECT_EQ(memory.ready(), 0U);
  memory.Start();
  EXPECT_TRUE(Comes([&] { return memory.ready() == 1; }));
}

INSTANTIATE_TEST_SUITE_P(Thread, ParkingMemoryTest, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "with" : "without"; });

}  // namespace
}  // namespace qtts::cuda
