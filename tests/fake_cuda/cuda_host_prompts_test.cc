// SPDX-License-Identifier: LGPL-2.1-or-later
// Prompts in pieces and together, and more utterances than slots.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda_host_fixture.h"
#include "scheduler/scheduler.h"

namespace qtts::cuda_host {
namespace {

// --- prompts in pieces

// A prompt of ordinary length is enqueued in one piece, for the least latency.
// Check: 32
TEST_F(CudaHostTest, AnOrdinaryPromptIsOnePiece) {
  const auto backend = NewBackend();
  for (const int rows : {2, 65, 256}) {
    const SlotId slot = Open(backend.get(), NewPrompt(config(), rows, &random_, 128));
    const auto progress = backend->Prefill(slot);
    ASSERT_TRUE(progress.ok()) << progress.status().message();
    EXPECT_TRUE(progress->done) << rows;
    EXPECT_LE(progress->work, 1);
    backend->Close(slot);
  }
}

// As many passes through the talker as there are pieces of prompt_rows.
TEST_F(CudaHostTest, AnOrdinaryPromptGoesThroughTheTalkerInPieces) {
  const auto launches_of = [&](int prompt_rows, int rows) {
    CudaOptions options = Options(-1, kSlots);
    options.prompt_rows = prompt_rows;
    const auto backend = CudaBackend::Create(model_.checkpoint(), options);
    EXPECT_TRUE(backend.ok()) << backend.status().message();
    Prompt prompt = NewPrompt(config(), rows, &random_, 0);
    prompt.constant_rows = 0;
    const SlotId slot = Open(backend->get(), prompt);
    const std::vector<std::string> calls = CallsOf([&] { EXPECT_TRUE((*backend)->Prefill(slot)->done); });
    EXPECT_EQ(Count(calls, "cudaStreamBeginCapture"), 0);
    return Count(calls, "cudaGraphLaunch");
  };
  for (const auto& [rows, by_64, by_256] : {std::tuple(3, 1, 1), {64, 1, 1}, {65, 2, 1}, {200, 4, 1}, {256, 4, 1}}) {
    EXPECT_EQ(launches_of(cuda::kMaxRows, rows), by_64) << rows;
    EXPECT_EQ(launches_of(cuda::Sequences::kRowsAtOnce, rows), by_256) << rows;
  }
}

// Prompts that fit into a pass through the talker together share it: one upload, one launch.
TEST_F(CudaHostTest, PromptsTogetherShareAPass) {
  CudaOptions options = Options(-1, 4);
  options.prompt_rows = cuda::Sequences::kRowsAtOnce;
  const auto backend = CudaBackend::Create(model_.checkpoint(), options);
  ASSERT_TRUE(backend.ok()) << backend.status().message();
  const auto launches_of = [&](const std::vector<int>& rows, size_t constant_rows) {
    Prompt voice = NewPrompt(config(), 300, &random_);
    std::vector<SlotId> slots;
    for (const int own_rows : rows) {
      Prompt prompt = voice;
      prompt.constant_rows = constant_rows;
      prompt.rows.resize(constant_rows + static_cast<size_t>(own_rows));
      slots.push_back(Open(backend->get(), prompt));
    }
    const std::vector<std::string> calls = CallsOf([&] {
      const std::vector<Result<PrefillProgress>> results = (*backend)->PrefillTogether(slots);
      ASSERT_EQ(results.size(), slots.size());
      for (const Result<PrefillProgress>& result : results) EXPECT_TRUE(result.ok() && result->done);
    });
    EXPECT_EQ(Count(calls, "cudaStreamBeginCapture"), 0);
    std::vector<FrameStep> steps;
    for (const SlotId slot : slots) steps.push_back({slot, kNoText});
    EXPECT_TRUE(Step(backend->get(), steps).ok());
    for (const SlotId slot : slots) (*backend)->Close(slot);
    return Count(calls, "cudaGraphLaunch");
  };
  EXPECT_EQ(launches_of({20, 30, 40}, 0), 1);
  EXPECT_EQ(launches_of({64, 64, 64, 64}, 0), 1);
  EXPECT_EQ(launches_of({64, 64, 64, 65}, 0), 2);
  EXPECT_EQ(launches_of({250, 10, 250}, 0), 3);
  // The first prompt of a voice fills the cache with the rows common to its prompts. It takes two passes.
  EXPECT_EQ(launches_of({20, 30, 40}, 10), 2 + 1);
  // A prompt with one row of its own needs no pass: that row goes through the talker with the first frame.
  EXPECT_EQ(launches_of({1, 20, 1, 30}, 12), 1 + 1);
}

// A slot that fails does not affect the others.
TEST_F(CudaHostTest, AmongPromptsTogetherOneFailsAlone) {
  const auto backend = NewBackend(3);
  const SlotId good = Open(backend.get(), NewPrompt(config(), 20, &random_));
  const SlotId closed = Open(backend.get(), NewPrompt(config(), 20, &random_));
  const SlotId other = Open(backend.get(), NewPrompt(config(), 30, &random_));
  backend->Close(closed);
  const auto results = backend->PrefillTogether(std::vector<SlotId>{good, closed, other});
  ASSERT_EQ(results.size(), 3U);
  EXPECT_TRUE(results[0].ok() && results[0]->done);
  EXPECT_EQ(results[1].status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(results[2].ok() && results[2]->done);
  EXPECT_TRUE(Step(backend.get(), {{good, kNoText}, {other, kNoText}}).ok());
}

// For a long prompt, each call enqueues about the work of a frame: 64 rows of the talker beside 16 frames of the codec.
// Few are in flight at once, since each one needs a free upload buffer.
// Check: 32
TEST_F(CudaHostTest, ALongPromptIsManyPieces) {
  const auto backend = NewBackend();
  Prompt prompt = NewPrompt(config(), 1000, &random_, 200);
  prompt.constant_rows = 100;
  const SlotId slot = Open(backend.get(), prompt);
  int launches = 0;
  int frames = 0;
  int pieces = 0;
  for (bool done = false; !done; ++pieces) {
    const std::vector<std::string> calls = CallsOf([&] {
      const auto progress = backend->Prefill(slot);
      ASSERT_TRUE(progress.ok()) << progress.status().message();
      EXPECT_DOUBLE_EQ(progress->work, 1);
      done = progress->done;
    });
    EXPECT_LE(Count(calls, "cudaGraphLaunch"), 1);
    EXPECT_LE(Count(calls, "Dequantize"), 16);
    EXPECT_GE(Count(calls, "cudaEventQuery"), 1);
    EXPECT_EQ(Count(calls, "cudaStreamBeginCapture"), 0);
    launches += static_cast<int>(Count(calls, "cudaGraphLaunch"));
    frames += static_cast<int>(Count(calls, "Dequantize"));
  }
  EXPECT_EQ(launches, 2 + 15);  // for 100 rows and for 900
  EXPECT_EQ(frames, 200);
  EXPECT_EQ(pieces, 17);
  EXPECT_TRUE(Step(backend.get(), {{slot, kNoText}}).ok());
  // The next prompt of the voice restores the first 100 rows and the codec's state.
  const SlotId next = Open(backend.get(), prompt);
  EXPECT_EQ(*PrefillAll(backend.get(), next), 15);
}

// Any cutting enqueues the same kernels in the same order.
// Check: 32
TEST_F(CudaHostTest, PiecesAreTheWholePrompt) {
  const Prompt prompt = NewPrompt(config(), 700, &random_, 150);
  const auto kernels = [&](bool pieces) {
    const auto backend = NewBackend();
    std::vector<std::string> calls = CallsOf([&] {
      const SlotId slot = pieces ? OpenAndPrefill(backend.get(), prompt) : Open(backend.get(), prompt);
      EXPECT_TRUE(Step(backend.get(), {{slot, kNoText}}).ok());
    });
    std::erase_if(calls, [](const std::string& call) { return call.starts_with("cudaSetDevice"); });
    std::erase_if(calls, [](const std::string& call) { return call.starts_with("cudaEventQuery"); });
    return calls;
  };
  EXPECT_EQ(kernels(true), kernels(false));
}

// Check: 32
TEST_F(CudaHostTest, ClosedInMidPrompt) {
  const auto backend = NewBackend();
  const Prompt prompt = NewPrompt(config(), 1000, &random_, 200);
  const SlotId speaking = Open(backend.get(), NewPrompt(config(), 20, &random_));
  ASSERT_TRUE(Step(backend.get(), {{speaking, kNoText}}).ok());
  for (int pieces = 0; pieces < 18; ++pieces) {
    const SlotId slot = Open(backend.get(), prompt);
    for (int i = 0; i < pieces; ++i) ASSERT_TRUE(backend->Prefill(slot).ok());
    ASSERT_TRUE(Step(backend.get(), {{speaking, 0}}).ok());
    backend->Close(slot);
    EXPECT_EQ(backend->Prefill(slot).status().code(), StatusCode::kInvalidArgument);
  }
  const SlotId slot = Open(backend.get(), prompt);
  EXPECT_TRUE(Step(backend.get(), {{speaking, 0}, {slot, kNoText}}).ok());
}

// If memory runs out within a prompt, only that utterance ends, and its slot is free again.
// Check: 32
TEST_F(CudaHostTest, AFaultInMidPromptEndsOneUtterance) {
  const auto backend = NewBackend();
  const SlotId speaking = Open(backend.get(), NewPrompt(config(), 20, &random_));
  ASSERT_TRUE(Step(backend.get(), {{speaking, kNoText}}).ok());
  for (int piece = 0; piece < 5; ++piece) {
    const SlotId slot = Open(backend.get(), NewPrompt(config(), 1000, &random_));
    for (int i = 0; i < piece; ++i) ASSERT_TRUE(backend->Prefill(slot).ok());
    fake_cuda::FailCall(2, cudaErrorMemoryAllocation, /*for_ever=*/false);
    EXPECT_EQ(backend->Prefill(slot).status().code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(backend->Prefill(slot).status().code(), StatusCode::kResourceExhausted);
    EXPECT_FALSE(Step(backend.get(), {{slot, kNoText}}).ok());
    ASSERT_TRUE(Step(backend.get(), {{speaking, 0}}).ok());
    backend->Close(slot);
  }
}

// --- more utterances than slots

// Check: 36
TEST_F(CudaHostTest, UtterancesBeyondItsSlotsWaitTheirTurn) {
  const auto tokenizer = Tokenizer::Load(model_.checkpoint()->folder());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  auto builder = PromptBuilder::Create(config(), *tokenizer);
  ASSERT_TRUE(builder.ok()) << builder.status().message();
  const auto prompts = std::make_shared<const PromptBuilder>(*std::move(builder));
  for (const int utterances : {65, 200}) {
    SCOPED_TRACE(utterances);
    CudaOptions options = Options();
    options.max_slots = kDefaultVoices;
    auto backend = CudaBackend::Create(model_.checkpoint(), options);
    ASSERT_TRUE(backend.ok()) << backend.status().message();
    const auto scheduler = Scheduler::Create(*std::move(backend));
    ASSERT_TRUE(scheduler.ok()) << scheduler.status().message();
    std::vector<std::shared_ptr<StreamState>> streams;
    for (int i = 0; i < utterances; ++i) {
      Request request;
      request.text = "Hello.";
      streams.push_back(std::make_shared<StreamState>(prompts, *tokenizer, request, 2, std::function<void()>()));
      const Status status = streams.back()->Begin();
      ASSERT_TRUE(status.ok()) << status.message();
      (*scheduler)->Add(streams.back());
    }
    for (const auto& stream : streams) {
      Frame frame;
      EXPECT_EQ(stream->Read(&frame, true), ReadState::kFrame) << stream->status().message();
      stream->Cancel();
    }
  }
}

}  // namespace
}  // namespace qtts::cuda_host
