// SPDX-License-Identifier: LGPL-2.1-or-later
// Memory that runs out, and parked pages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda_host_fixture.h"
#include "runtime/device_memory.h"
#include "scheduler/scheduler.h"
#include "sequences/parked_pages.h"

namespace qtts::cuda_host {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// --- failures

// If an utterance finds no memory, only that utterance fails; the others go on, and a later one can begin.
TEST_F(CudaHostTest, MemoryRunsOutInMidSpeech) {
  const auto backend = NewBackend();
  const SlotId speaking = Open(backend.get(), NewPrompt(config(), 20, &random_));
  ASSERT_TRUE(Step(backend.get(), {{speaking, kNoText}}).ok());
  fake_cuda::LeaveMemory(0, 0);
  const Prompt large = NewPrompt(config(), 20000, &random_);
  const auto refused = backend->Open(large, GenerationSettings(), 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), HasSubstr("device=cpu"));
  EXPECT_TRUE(Step(backend.get(), {{speaking, 0}}).ok());
  fake_cuda::LeaveMemory(0, size_t{16} << 30);
  const SlotId later = Open(backend.get(), large);
  EXPECT_TRUE(Step(backend.get(), {{speaking, 0}, {later, kNoText}}).ok());
}

// The pages are those that fit into the device's free memory beside the slots' codec states.
TEST_F(CudaHostTest, PagesAreCountedBeforeTheyAreAllocated) {
  fake_cuda::LeaveMemory(0, size_t{4} << 30);
  const auto backend = NewBackend(kDefaultVoices);
  const ContextPages at_first = backend->pages();
  EXPECT_GT(at_first.positions, 0);
  EXPECT_GT(at_first.free, 100);
  EXPECT_GT(at_first.total, at_first.free - 1);
  const SlotId slot = Open(backend.get(), NewPrompt(config(), 1000, &random_));
  const ContextPages with_one = backend->pages();
  EXPECT_NEAR(static_cast<double>(with_one.total), static_cast<double>(at_first.total), 20);
  EXPECT_GE(with_one.total - with_one.free, 1000 / with_one.positions);
  // Another program allocates the rest.
  fake_cuda::LeaveMemory(0, 0);
  EXPECT_FALSE(backend->Open(NewPrompt(config(), 20000, &random_), GenerationSettings(), 1).ok());
  EXPECT_LT(backend->pages().total, with_one.total / 2);
  // It frees that memory again.
  fake_cuda::LeaveMemory(0, size_t{4} << 30);
  Open(backend.get(), NewPrompt(config(), 20000, &random_));
  EXPECT_GT(backend->pages().total, with_one.total / 2);
  backend->Close(slot);
}

// --- parking

TEST_F(CudaHostTest, ParkedPagesKeepTheirBytes) {
  constexpr size_t kBytes = 1000;
  auto stream = cuda::Stream::Create();
  ASSERT_TRUE(stream.ok());
  cuda::ParkedPages parked(kBytes, 2, 5 * kBytes, stream->get());
  std::vector<cuda::DeviceMemory> memory;
  std::vector<void*> pages;
  for (int i = 0; i < 3; ++i) {
    memory.push_back(*cuda::DeviceMemory::Allocate(kBytes));
    pages.push_back(memory.back().data());
  }
  const auto fill = [&](int first) {
    for (size_t i = 0; i < pages.size(); ++i) std::memset(pages[i], first + static_cast<int>(i), kBytes);
  };
  const auto expect = [&](int first) {
    for (size_t i = 0; i < pages.size(); ++i) {
      const auto* const bytes = memory[i].as<char>();
      EXPECT_EQ(std::count(bytes, bytes + kBytes, static_cast<char>(first + static_cast<int>(i))), kBytes) << i;
    }
  };
  fill(10);
  ASSERT_TRUE(parked.Save(0, pages).ok());
  EXPECT_EQ(parked.PagesOf(0), 3U);
  fill(20);
  EXPECT_EQ(parked.Save(1, pages).code(), StatusCode::kResourceExhausted) << "six pages are more than the limit";
  EXPECT_FALSE(parked.Holds(1));
  fill(30);
  ASSERT_TRUE(parked.Restore(0, pages).ok());
  expect(10);
  EXPECT_FALSE(parked.Holds(0));
  // A failed Save() leaves nothing behind.
  fake_cuda::FailCall(2, cudaErrorInvalidValue, /*for_ever=*/false);
  EXPECT_FALSE(parked.Save(1, pages).ok());
  EXPECT_FALSE(parked.Holds(1));
  const size_t alive = fake_cuda::alive();
  ASSERT_TRUE(parked.Save(1, pages).ok());
  EXPECT_EQ(fake_cuda::alive(), alive) << "the host's memory is used again";
  fill(40);
  ASSERT_TRUE(parked.Restore(1, pages).ok());
  expect(10);
}

TEST_F(CudaHostTest, AParkedSlotFreesItsPagesAndGoesOn) {
  const auto backend = NewBackend(3);
  const SlotId slot = OpenAndPrefill(backend.get(), NewPrompt(config(), 1000, &random_));
  const SlotId beside = OpenAndPrefill(backend.get(), NewPrompt(config(), 20, &random_));
  ASSERT_TRUE(Step(backend.get(), {{slot, kNoText}, {beside, kNoText}}).ok());
  const ContextPages before = backend->pages();
  // With a frame in flight.
  ASSERT_TRUE(backend->Submit(std::vector<FrameStep>{{slot, 0}, {beside, 0}}).ok());
  const std::vector<std::string> calls = CallsOf([&] { ASSERT_TRUE(backend->Park(slot).ok()); });
  EXPECT_EQ(Count(calls, "cudaMemcpyAsync"), 1000 / before.positions + 1);
  EXPECT_GE(backend->pages().free - before.free, 1000 / before.positions + 1);
  const auto results = backend->Collect();
  ASSERT_TRUE(results.ok()) << results.status().message();
  for (const FrameResult& result : *results) {
    EXPECT_EQ(result.end, EndReason::kNone);
    EXPECT_FALSE(result.pcm.empty());
  }
  EXPECT_FALSE(backend->Park(slot).ok());
  EXPECT_FALSE(backend->Reserve(slot).ok());
  ASSERT_TRUE(Step(backend.get(), {{beside, 0}}).ok());
  ASSERT_TRUE(backend->Unpark(slot).ok());
  EXPECT_FALSE(backend->Unpark(slot).ok());
  EXPECT_EQ(backend->pages().free, before.free);
  const auto room = backend->Reserve(slot);
  ASSERT_TRUE(room.ok()) << room.status().message();
  EXPECT_GT(*room, 2);
  for (int frame = 0; frame < 300; ++frame) ASSERT_TRUE(Step(backend.get(), {{slot, 0}, {beside, 0}}).ok()) << frame;
  // The second parking reuses most of the host memory.
  EXPECT_LT(Count(CallsOf([&] { ASSERT_TRUE(backend->Park(slot).ok()); }), "cudaHostRegister"), 5);
  backend->Close(slot);
  EXPECT_GE(backend->pages().free, before.free);
}

// Returns the number of threads of this process.
size_t Threads() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return static_cast<size_t>(std::distance(threads, std::filesystem::directory_iterator()));
}

TEST_F(CudaHostTest, HostMemoryIsMadeReadyOncePagesAreShort) {
  const auto backend = NewBackend(3);
  const size_t before = Threads();
  const SlotId slot = OpenAndPrefill(backend.get(), NewPrompt(config(), 1000, &random_));
  ASSERT_TRUE(Step(backend.get(), {{slot, kNoText}}).ok());
  EXPECT_EQ(Threads(), before);
  (void)LeaveNoMemory(backend.get());
  EXPECT_EQ(Threads(), before + 1);
  EXPECT_TRUE(backend->Park(slot).ok());
  EXPECT_TRUE(backend->Unpark(slot).ok());
  EXPECT_TRUE(Step(backend.get(), {{slot, 0}}).ok());
  EXPECT_EQ(Threads(), before + 1);
}

TEST_F(CudaHostTest, WhatCannotBeParkedOrBroughtBackStaysWhereItIs) {
  CudaOptions options = Options(-1, 3);
  options.parking_bytes = 0;
  auto without_host_memory = CudaBackend::Create(model_.checkpoint(), options);
  ASSERT_TRUE(without_host_memory.ok());
  const Prompt large = NewPrompt(config(), 1000, &random_);
  SlotId slot = OpenAndPrefill(without_host_memory->get(), large);
  EXPECT_EQ((*without_host_memory)->Park(slot).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(Step(without_host_memory->get(), {{slot, kNoText}}).ok());
  without_host_memory->reset();

  const auto backend = NewBackend(3);
  slot = OpenAndPrefill(backend.get(), large);
  ASSERT_TRUE(Step(backend.get(), {{slot, kNoText}}).ok());
  ASSERT_TRUE(backend->Park(slot).ok());
  const ContextPages pages = LeaveNoMemory(backend.get());
  const auto rows = static_cast<int>((pages.total - 2) * pages.positions);
  const SlotId other = OpenAndPrefill(backend.get(), NewPrompt(config(), rows, &random_));
  EXPECT_EQ(backend->Unpark(slot).code(), StatusCode::kResourceExhausted);
  backend->Close(other);
  ASSERT_TRUE(backend->Unpark(slot).ok());
  EXPECT_TRUE(Step(backend.get(), {{slot, 0}}).ok());
}

// Pages kept for voices are given to speaking utterances.
TEST_F(CudaHostTest, PagesOfKeptVoicesAreFree) {
  const auto backend = NewBackend();
  const int64_t total = LeaveNoMemory(backend.get()).total;
  const int64_t page = backend->pages().positions;
  for (int i = 0; i < 4; ++i) {
    Prompt prompt = NewPrompt(config(), 1000, &random_);
    prompt.constant_rows = 999;
    backend->Close(OpenAndPrefill(backend.get(), prompt));
    EXPECT_EQ(backend->pages().free, total);
  }
  const SlotId slot =
      OpenAndPrefill(backend.get(), NewPrompt(config(), static_cast<int>((total - 1) * page), &random_));
  EXPECT_LE(backend->pages().free, 1);
  EXPECT_TRUE(Step(backend.get(), {{slot, kNoText}}).ok());
}

// Three utterances whose contexts exceed the device's memory.
TEST_F(CudaHostTest, NobodyWhoSpeaksFailsForWantOfPages) {
  const auto tokenizer = Tokenizer::Load(model_.checkpoint()->folder());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  auto builder = PromptBuilder::Create(config(), *tokenizer);
  ASSERT_TRUE(builder.ok()) << builder.status().message();
  const auto prompts = std::make_shared<const PromptBuilder>(*std::move(builder));
  auto backend = NewBackend(3);
  const ContextPages pages = LeaveNoMemory(backend.get());
  const auto frames = static_cast<int>(pages.total * pages.positions * 2 / 5);
  const auto scheduler = Scheduler::Create(std::move(backend));
  ASSERT_TRUE(scheduler.ok()) << scheduler.status().message();
  std::vector<std::shared_ptr<StreamState>> streams;
  for (int i = 0; i < 3; ++i) {
    Request request;
    request.text = "Hello.";
    streams.push_back(std::make_shared<StreamState>(prompts, *tokenizer, request, 25, std::function<void()>()));
    ASSERT_TRUE(streams.back()->Begin().ok());
    (*scheduler)->Add(streams.back());
  }
  Frame frame;
  for (const auto& stream : streams) {
    for (int i = 0; i < frames; ++i) {
      ASSERT_EQ(stream->Read(&frame, true), ReadState::kFrame) << i << ": " << stream->status().message();
    }
  }
  EXPECT_GE((*scheduler)->occupancy().parked, 1);
  EXPECT_EQ((*scheduler)->occupancy().pages, pages.total);
  EXPECT_GT((*scheduler)->occupancy().device_bytes, 0U);
  for (const auto& stream : streams) {
    ASSERT_EQ(stream->Read(&frame, true), ReadState::kFrame) << stream->status().message();
    EXPECT_EQ(frame.index, frames);
  }
}

// If one half of a buffer finds no memory, the next attempt allocates both again.
TEST_F(CudaHostTest, AnUploadThatFoundNoMemoryFindsItTheNextTime) {
  constexpr size_t kBytes = 100000;
  for (size_t call = 1; call <= 3; ++call) {
    SCOPED_TRACE(call);
    fake_cuda::Reset();
    auto ring = cuda::UploadRing::Create();
    auto stream = cuda::Stream::Create();
    ASSERT_TRUE(ring.ok() && stream.ok());
    fake_cuda::FailCall(call, cudaErrorMemoryAllocation, /*for_ever=*/false);
    EXPECT_EQ(ring->Prepare(kBytes).status().code(), StatusCode::kResourceExhausted);
    const auto host = ring->Prepare(kBytes);
    ASSERT_TRUE(host.ok()) << host.status().message();
    std::fill_n(*host, kBytes, 'x');
    const auto sent = ring->Send(stream->get());
    ASSERT_TRUE(sent.ok()) << sent.status().message();
    EXPECT_TRUE(std::equal(*host, *host + kBytes, *sent));
    EXPECT_THAT(fake_cuda::misuse(), IsEmpty());
  }
}

}  // namespace
}  // namespace qtts::cuda_host
