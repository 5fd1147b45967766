// SPDX-License-Identifier: LGPL-2.1-or-later
// One stream and another: frames, texts, ends, cancelling, and a lost device.
#include "scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "scheduler_fixture.h"

namespace qtts {
namespace {

using std::chrono::milliseconds;

TEST_F(SchedulerTest, FramesComeInOrderAndTheUtteranceEnds) {
  script_->frames_by_seed[3] = 40;
  const auto stream = Start(3);
  EXPECT_EQ(ReadAll(*stream, 3).size(), 40U);
  EXPECT_EQ(stream->end_reason(), EndReason::kComplete);
  EXPECT_TRUE(stream->status().ok());
}

TEST_F(SchedulerTest, TokenLimitIsReported) {
  script_->end_by_seed[1] = EndReason::kMaxDuration;
  const auto stream = Start(1);
  EXPECT_EQ(ReadAll(*stream, 1).size(), 5U);
  EXPECT_EQ(stream->end_reason(), EndReason::kMaxDuration);
}

TEST_F(SchedulerTest, NoStepFollowsThatOfTheLastToken) {
  script_->beside_host = true;
  script_->max_outstanding = 3;
  script_->frames_by_seed[1] = 100;
  Request request;
  request.text = "Hello.";
  request.seed = 1;
  request.settings.max_new_tokens = 8;
  const auto stream = StartRequest(request);
  EXPECT_EQ(ReadAll(*stream, 1).size(), 7U);
  EXPECT_EQ(stream->end_reason(), EndReason::kMaxDuration);
  EXPECT_EQ(script_.Text(1).size(), 8U);
}

TEST_F(SchedulerTest, ARunawayIsEndedIfThatIsWanted) {
  for (const uint64_t seed : {1, 2, 3, 4}) script_->frames_by_seed[seed] = 600;
  script_->silent_seeds = {1, 2};
  const auto count = [&](uint64_t seed, bool guard, EndReason expected) {
    const auto stream = Start(seed, {.text = "Hi.", .runaway_guard = guard});
    size_t frames = 0;
    Frame frame;
    while (stream->Read(&frame, true) == ReadState::kFrame) ++frames;
    EXPECT_EQ(stream->end_reason(), expected) << seed;
    return frames;
  };
  EXPECT_EQ(count(1, true, EndReason::kRunaway), static_cast<size_t>(RunawayGuard::kSilentFrames));
  EXPECT_EQ(count(2, false, EndReason::kComplete), 600U);
  const size_t sounding = count(3, true, EndReason::kRunaway);
  EXPECT_GT(sounding, static_cast<size_t>(RunawayGuard::kFramesAtLeast + RunawayGuard::kFramesPerToken));
  EXPECT_LT(sounding, 600U);
  EXPECT_EQ(count(4, false, EndReason::kComplete), 600U);
}

TEST_F(SchedulerTest, ReaderThatDoesNotReadStopsItsStreamOnly) {
  script_->frames_by_seed[1] = script_->frames_by_seed[2] = 20;
  const auto slow = Start(1, {.lead = 3});
  EXPECT_EQ(SettledText(1, 3).size(), 3U);
  EXPECT_EQ(ReadAll(*Start(2), 2).size(), 20U);
  EXPECT_EQ(script_.Text(1).size(), 3U);
  EXPECT_EQ(ReadAll(*slow, 1).size(), 20U);
}

TEST_F(SchedulerTest, RunAheadKeepsOrderAndRoom) {
  script_->max_outstanding = 3;
  script_->frames_by_seed[1] = script_->frames_by_seed[2] = 30;
  const auto narrow = Start(1, {.lead = 2});
  const auto wide = Start(2);
  EXPECT_EQ(ReadAll(*wide, 2).size(), 30U);
  EXPECT_LE(script_.Text(1).size(), 2U);
  EXPECT_EQ(ReadAll(*narrow, 1).size(), 30U);
}

TEST_F(SchedulerTest, NothingRunsBesideAFirstFrame) {
  script_->max_outstanding = 2;
  script_.SetGate(false);
  const auto stream = Start(1);
  ASSERT_TRUE(Await([&] { return script_->collecting > 0; }));
  EXPECT_EQ(script_->text_by_seed[1].size(), 1U) << "it waits for the first frame before it asks for the second";
  script_.SetGate(true);
  EXPECT_EQ(ReadAll(*stream, 1).size(), 5U);
  EXPECT_EQ(script_->most_outstanding, 2U) << "later ones are asked for ahead";
}

TEST_F(SchedulerTest, AnExpectedStreamMayComeAtOnceLateOrNever) {
  script_->beside_host = true;
  for (const milliseconds late : {milliseconds(0), milliseconds(1), milliseconds(5)}) {
    scheduler().Expect();
    std::this_thread::sleep_for(late);
    EXPECT_EQ(ReadAll(*Start(1), 1).size(), 5U);
  }
  scheduler().Expect();
}

TEST_F(SchedulerTest, TextIsFedTokenByTokenThenEndThenPadding) {
  script_->frames_by_seed[1] = 12;
  const std::string text = "Hello there my friend.";
  TextFeed feed(tokenizer_);
  ASSERT_TRUE(feed.Append(text).ok());
  ASSERT_TRUE(feed.Finish().ok());
  const std::vector<int32_t> ids = feed.TakeIds();
  ReadAll(*Start(1, {.text = text}), 1);
  std::vector<int32_t> expected = {kNoText};
  expected.insert(expected.end(), ids.begin() + 3, ids.end());  // the first ids are the prompt's
  expected.push_back(eos_);
  expected.resize(13, pad_);
  EXPECT_EQ(script_.Text(1), expected);
}

TEST_F(SchedulerTest, LateTextStallsAndIsNeverPadded) {
  script_->frames_by_seed[1] = script_->frames_by_seed[9] = 30;
  const std::string text = "One two three four five six.";
  ReadAll(*Start(9, {.text = text}), 9);
  const auto stream = Start(1, {.text = "One", .more_text = true});
  size_t before = 0;
  for (const char* piece : {" two", " three four", " fi", "ve six."}) {
    ASSERT_TRUE(stream->Append(piece).ok());
    const std::vector<int32_t> now = SettledText(1, before);
    for (const int32_t id : now) EXPECT_NE(id, pad_);
    before = now.size();
  }
  EXPECT_LT(before, 30U);
  // A stalled stream does not delay others.
  EXPECT_EQ(ReadAll(*Start(2), 2).size(), 5U);
  ASSERT_TRUE(stream->FinishText().ok());
  EXPECT_EQ(ReadAll(*stream, 1).size(), 30U);
  EXPECT_EQ(script_.Text(1), script_.Text(9)) << "piecewise text must feed the same ids as whole text";
}

TEST_F(SchedulerTest, OpenTextThatStaysBlankCompletesWithoutFrames) {
  const auto stream = Start(1, {.text = "", .more_text = true});
  ASSERT_TRUE(stream->Append("  \n").ok());
  ASSERT_TRUE(stream->FinishText().ok());
  EXPECT_TRUE(ReadAll(*stream, 1).empty());
  EXPECT_EQ(stream->end_reason(), EndReason::kComplete);
  EXPECT_FALSE(stream->Append("more").ok());
}

TEST_F(SchedulerTest, BlankTextIsRefused) {
  for (const char* text : {"", " ", "\n\t "}) {
    Request request;
    request.text = text;
    StreamState stream(prompts_, tokenizer_, request, 3, {});
    EXPECT_EQ(stream.Begin().code(), StatusCode::kInvalidArgument) << '"' << text << '"';
  }
}

TEST_F(SchedulerTest, CancelDoesNotWaitForTheDevice) {
  script_.SetGate(false);
  const auto stream = Start(1);
  ASSERT_TRUE(Await([&] { return script_->collecting > 0; }));
  stream->Cancel();
  Frame frame;
  EXPECT_EQ(stream->Read(&frame, true), ReadState::kEnd);
  EXPECT_EQ(stream->end_reason(), EndReason::kCancelled);
  script_.SetGate(true);
  EXPECT_EQ(ReadAll(*Start(2), 2).size(), 5U);
}

TEST_F(SchedulerTest, CancelWakesABlockedReader) {
  script_.SetGate(false);
  const auto stream = Start(1);
  std::thread reader([&] {
    Frame frame;
    EXPECT_EQ(stream->Read(&frame, true), ReadState::kEnd);
  });
  std::this_thread::sleep_for(milliseconds(5));
  stream->Cancel();
  reader.join();
  script_.SetGate(true);
}

TEST_F(SchedulerTest, CancelDropsUnreadFrames) {
  const auto stream = Start(1);
  SettledText(1, 6);
  stream->Cancel();
  Frame frame;
  EXPECT_EQ(stream->Read(&frame, false), ReadState::kEnd);
  EXPECT_EQ(stream->end_reason(), EndReason::kCancelled);
}

TEST_F(SchedulerTest, OneFailingStreamLeavesOthersAlone) {
  script_->end_by_seed[1] = EndReason::kError;
  script_->frames_by_seed[1] = 2;
  script_->frames_by_seed[2] = 20;
  const auto good = Start(2);
  const auto bad = Start(1);
  EXPECT_EQ(ReadAll(*bad, 1).size(), 2U);
  EXPECT_EQ(bad->end_reason(), EndReason::kError);
  EXPECT_EQ(bad->status().message(), "scripted failure");
  EXPECT_EQ(ReadAll(*good, 2).size(), 20U);
}

TEST_F(SchedulerTest, RefusedSlotFailsItsStream) {
  script_->open_error_by_seed.emplace(1, Status::ResourceExhausted("no room"));
  const auto bad = Start(1);
  EXPECT_TRUE(ReadAll(*bad, 1).empty());
  EXPECT_EQ(bad->status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ReadAll(*Start(2), 2).size(), 5U);
}

TEST_F(SchedulerTest, LostDeviceFailsEveryStreamNowAndLater) {
  script_.SetGate(false);
  const auto first = Start(1);
  const auto second = Start(2);
  script_->device_lost = true;
  script_.SetGate(true);
  for (const auto& stream : {first, second, Start(3)}) {
    ReadAll(*stream, 0);
    EXPECT_EQ(stream->end_reason(), EndReason::kError);
    EXPECT_EQ(stream->status().code(), StatusCode::kDeviceUnavailable);
  }
  EXPECT_TRUE(scheduler_->device_lost());
}

// The optional parts of a backend are gone with it. AddressSanitizer detects a call of one.
TEST_F(SchedulerTest, ALostDeviceIsAskedNothingMore) {
  script_->beside_host = true;
  script_->prompt_rows_together = 100;
  script_->page_positions = 4;
  script_->pages = 100;
  script_.SetGate(false);
  const auto first = Start(1);
  script_->device_lost = true;
  script_.SetGate(true);
  for (const auto& stream : {first, Start(2), Start(3)}) {
    ReadAll(*stream, 0);
    EXPECT_EQ(stream->status().code(), StatusCode::kDeviceUnavailable);
  }
  const Occupancy occupancy = scheduler_->occupancy();
  EXPECT_EQ(occupancy.free_slots, occupancy.slots);
  EXPECT_EQ(occupancy.free_pages, occupancy.pages);
}

// Neither the log nor the backend gets memory.
TEST_F(SchedulerTest, LostDeviceFailsEveryStreamAlsoWithoutMemory) {
  static constexpr LogSink kSink = {[](LogLevel level) { return level == LogLevel::kWarning; },
                                    [](LogLevel /*level*/, const char* /*line*/) { throw std::bad_alloc(); }};
  script_.SetGate(false);
  script_->close_needs_memory = true;
  const auto first = Start(1);
  const auto second = Start(2);
  SetLogSink(&kSink);
  script_->device_lost = true;
  script_.SetGate(true);
  for (const auto& stream : {first, second}) {
    ReadAll(*stream, 0);
    EXPECT_EQ(stream->end_reason(), EndReason::kError);
    EXPECT_EQ(stream->status().code(), StatusCode::kDeviceUnavailable);
  }
  SetLogSink(nullptr);
  const Occupancy occupancy = scheduler_->occupancy();
  EXPECT_EQ(occupancy.free_slots, occupancy.slots);
}

// The next utterance detects that the device was lost elsewhere.
TEST_F(SchedulerTest, DeviceLostWhenAnUtteranceBeginsFailsEveryStream) {
  script_->frames_by_seed[1] = 1000000;
  script_->open_error_by_seed.emplace(2, Status::DeviceUnavailable("no GPU"));
  const auto running = Start(1, {.lead = 5});
  SettledText(1, 5);
  for (const auto& stream : {Start(2), running, Start(3)}) {
    ReadAll(*stream, 1);
    EXPECT_EQ(stream->end_reason(), EndReason::kError);
    EXPECT_EQ(stream->status().code(), StatusCode::kDeviceUnavailable);
  }
  EXPECT_TRUE(scheduler_->device_lost());
}

// Check: 32
TEST_F(SchedulerTest, ATextThatNoModelCouldSpeakIsRefusedBeforeItIsTokens) {
  for (const bool more_text : {false, true}) {
    Request request;
    request.text.assign(size_t{20} << 20, 'a');
    request.more_text = more_text;
    StreamState stream(prompts_, tokenizer_, request, 3, {});
    const Status status = stream.Begin();
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_NE(status.message().find("20971520 bytes"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find(std::to_string(prompts_->max_text_bytes())), std::string::npos);
  }
  Request request;
  request.text = "Hello";
  request.more_text = true;
  request.layout = PromptLayout::kStreaming;
  StreamState stream(prompts_, tokenizer_, request, 3, {});
  ASSERT_TRUE(stream.Begin().ok());
  EXPECT_EQ(stream.Append(std::string(prompts_->max_text_bytes(), ' ')).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(stream.end_reason(), EndReason::kError);
}

TEST_F(SchedulerTest, EveryFrameAndTheEndAreAnnounced) {
  std::atomic<int> calls = 0;
  const auto stream = Start(1, {.on_change = [&] { ++calls; }});
  ReadAll(*stream, 1);
  scheduler_.reset();
  EXPECT_EQ(calls, 6);
}

TEST_F(SchedulerTest, StoppingEndsRunningStreams) {
  script_->frames_by_seed[1] = 1000000;
  const auto running = Start(1, {.lead = 5});
  SettledText(1, 5);
  scheduler_.reset();
  EXPECT_EQ(running->end_reason(), EndReason::kCancelled);
}

TEST_F(SchedulerTest, ManyThreadsStartAppendReadAndCancel) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  script_->max_outstanding = 2;
  script_->beside_host = true;
  scheduler();
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 6; ++t) {
    threads.emplace_back([this, seed, t] {
      std::mt19937 random(seed + t);
      for (int i = 0; i < 40; ++i) {
        if (random() % 2 == 0) scheduler_->Expect();
        const auto stream = Start(t, {.text = "Go", .more_text = true, .lead = 1 + random() % 4});
        std::thread writer([&stream] {
          for (int n = 0; n < 4; ++n) {
            if (!stream->Append(" on and on").ok()) return;
          }
          (void)stream->FinishText();
        });
        const bool cancel = random() % 3 == 0;
        Frame frame;
        for (unsigned n = 0; n < random() % 5 && stream->Read(&frame, true) == ReadState::kFrame; ++n) continue;
        if (cancel) stream->Cancel();
        writer.join();
        while (stream->Read(&frame, true) == ReadState::kFrame) continue;
        EXPECT_EQ(stream->end_reason() == EndReason::kCancelled,
                  cancel && stream->end_reason() != EndReason::kComplete);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace qtts
