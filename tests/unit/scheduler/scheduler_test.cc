// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <map>
#include <new>
#include <random>
#include <thread>

#include "qtts/log.h"
#include "scheduler_fixture.h"

namespace qtts {
namespace {

using std::chrono::milliseconds;

// Number of pieces of a prompt that does not end within a test, even on a busy machine.
constexpr int kEndless = 30000000;

TEST_F(SchedulerTest, FramesComeInOrderAndTheUtteranceEnds) {
  script_.frames_by_seed[3] = 40;
  const auto stream = Start(3);
  EXPECT_EQ(ReadAll(*stream, 3).size(), 40U);
  EXPECT_EQ(stream->end_reason(), EndReason::kComplete);
  EXPECT_TRUE(stream->status().ok());
}

TEST_F(SchedulerTest, TokenLimitIsReported) {
  script_.end_by_seed[1] = EndReason::kMaxDuration;
  const auto stream = Start(1);
  EXPECT_EQ(ReadAll(*stream, 1).size(), 5U);
  EXPECT_EQ(stream->end_reason(), EndReason::kMaxDuration);
}

TEST_F(SchedulerTest, NoStepFollowsThatOfTheLastToken) {
  script_.beside_host = true;
  script_.max_outstanding = 3;
  script_.frames_by_seed[1] = 100;
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
  for (const uint64_t seed : {1, 2, 3, 4}) script_.frames_by_seed[seed] = 600;
  script_.silent_seeds = {1, 2};
  const auto count = [&](uint64_t seed, bool guard, EndReason expected) {
    const auto stream = Start(seed, "Hi.", false, 25, {}, guard);
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
  script_.frames_by_seed[1] = script_.frames_by_seed[2] = 20;
  const auto slow = Start(1, "Hello.", false, 3);
  EXPECT_EQ(SettledText(1, 3).size(), 3U);
  EXPECT_EQ(ReadAll(*Start(2), 2).size(), 20U);
  EXPECT_EQ(script_.Text(1).size(), 3U);
  EXPECT_EQ(ReadAll(*slow, 1).size(), 20U);
}

TEST_F(SchedulerTest, RunAheadKeepsOrderAndRoom) {
  script_.max_outstanding = 3;
  script_.frames_by_seed[1] = script_.frames_by_seed[2] = 30;
  const auto narrow = Start(1, "Hello.", false, 2);
  const auto wide = Start(2);
  EXPECT_EQ(ReadAll(*wide, 2).size(), 30U);
  EXPECT_LE(script_.Text(1).size(), 2U);
  EXPECT_EQ(ReadAll(*narrow, 1).size(), 30U);
}

TEST_F(SchedulerTest, NothingRunsBesideAFirstFrame) {
  script_.max_outstanding = 2;
  script_.SetGate(false);
  const auto stream = Start(1);
  {
    std::unique_lock lock(script_.mutex);
    ASSERT_TRUE(script_.changed.wait_for(lock, std::chrono::seconds(60), [&] { return script_.collecting > 0; }));
    EXPECT_EQ(script_.text_by_seed[1].size(), 1U) << "it waits for the first frame before it asks for the second";
  }
  script_.SetGate(true);
  EXPECT_EQ(ReadAll(*stream, 1).size(), 5U);
  EXPECT_EQ(script_.most_outstanding, 2U) << "later ones are asked for ahead";
}

TEST_F(SchedulerTest, AnExpectedStreamMayComeAtOnceLateOrNever) {
  script_.beside_host = true;
  for (const milliseconds late : {milliseconds(0), milliseconds(1), milliseconds(5)}) {
    scheduler().Expect();
    std::this_thread::sleep_for(late);
    EXPECT_EQ(ReadAll(*Start(1), 1).size(), 5U);
  }
  scheduler().Expect();
}

TEST_F(SchedulerTest, TextIsFedTokenByTokenThenEndThenPadding) {
  script_.frames_by_seed[1] = 12;
  const std::string text = "Hello there my friend.";
  TextFeed feed(tokenizer_);
  ASSERT_TRUE(feed.Append(text).ok());
  ASSERT_TRUE(feed.Finish().ok());
  const std::vector<int32_t> ids = feed.TakeIds();
  ReadAll(*Start(1, text), 1);
  std::vector<int32_t> expected = {kNoText};
  expected.insert(expected.end(), ids.begin() + 3, ids.end());  // the first ids are the prompt's
  expected.push_back(eos_);
  expected.resize(13, pad_);
  EXPECT_EQ(script_.Text(1), expected);
}

TEST_F(SchedulerTest, LateTextStallsAndIsNeverPadded) {
  script_.frames_by_seed[1] = script_.frames_by_seed[9] = 30;
  const std::string text = "One two three four five six.";
  ReadAll(*Start(9, text), 9);
  const auto stream = Start(1, "One", true);
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
  const auto stream = Start(1, "", true);
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
  {
    std::unique_lock lock(script_.mutex);
    ASSERT_TRUE(script_.changed.wait_for(lock, std::chrono::seconds(60), [&] { return script_.collecting > 0; }));
  }
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
  script_.end_by_seed[1] = EndReason::kError;
  script_.frames_by_seed[1] = 2;
  script_.frames_by_seed[2] = 20;
  const auto good = Start(2);
  const auto bad = Start(1);
  EXPECT_EQ(ReadAll(*bad, 1).size(), 2U);
  EXPECT_EQ(bad->end_reason(), EndReason::kError);
  EXPECT_EQ(bad->status().message(), "scripted failure");
  EXPECT_EQ(ReadAll(*good, 2).size(), 20U);
}

TEST_F(SchedulerTest, RefusedSlotFailsItsStream) {
  script_.open_error_by_seed.emplace(1, Status::ResourceExhausted("no room"));
  const auto bad = Start(1);
  EXPECT_TRUE(ReadAll(*bad, 1).empty());
  EXPECT_EQ(bad->status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ReadAll(*Start(2), 2).size(), 5U);
}

TEST_F(SchedulerTest, LostDeviceFailsEveryStreamNowAndLater) {
  script_.SetGate(false);
  const auto first = Start(1);
  const auto second = Start(2);
  {
    std::lock_guard lock(script_.mutex);
    script_.device_lost = true;
  }
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
  script_.beside_host = true;
  script_.prompt_rows_together = 100;
  script_.page_positions = 4;
  script_.pages = 100;
  script_.SetGate(false);
  const auto first = Start(1);
  {
    std::lock_guard lock(script_.mutex);
    script_.device_lost = true;
  }
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
  script_.close_needs_memory = true;
  const auto first = Start(1);
  const auto second = Start(2);
  SetLogSink(&kSink);
  {
    std::lock_guard lock(script_.mutex);
    script_.device_lost = true;
  }
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
  script_.frames_by_seed[1] = 1000000;
  script_.open_error_by_seed.emplace(2, Status::DeviceUnavailable("no GPU"));
  const auto running = Start(1, "Hello.", false, 5);
  SettledText(1, 5);
  for (const auto& stream : {Start(2), running, Start(3)}) {
    ReadAll(*stream, 1);
    EXPECT_EQ(stream->end_reason(), EndReason::kError);
    EXPECT_EQ(stream->status().code(), StatusCode::kDeviceUnavailable);
  }
  EXPECT_TRUE(scheduler_->device_lost());
}

// --- prompts in pieces

// A speaking stream gets a frame between two pieces of a long prompt.
TEST_F(SchedulerTest, FramesOfOthersComeBetweenThePiecesOfAPrompt) {
  script_.frames_by_seed[1] = 1000000;
  script_.pieces_by_seed[2] = kEndless;
  const auto speaking = Start(1, "Hello.", false, 5);
  Frame frame;
  ASSERT_EQ(speaking->Read(&frame, true), ReadState::kFrame);
  const auto waiting = Start(2);
  ASSERT_TRUE(Await([&] { return script_.pieces.size() > 2; }));
  for (int i = 0; i < 50; ++i) ASSERT_EQ(speaking->Read(&frame, true), ReadState::kFrame);
  EXPECT_EQ(waiting->Read(&frame, false), ReadState::kPending);
  EXPECT_TRUE(script_.Text(2).empty());
}

// A short prompt waits for at most one piece of an earlier long one.
TEST_F(SchedulerTest, PromptsTakeTurns) {
  script_.pieces_by_seed[1] = kEndless;
  script_.pieces_by_seed[3] = 10;
  const auto endless = Start(1);
  ASSERT_TRUE(Await([&] { return script_.pieces.size() > 2; }));
  EXPECT_EQ(ReadAll(*Start(2), 2).size(), 5U);
  script_.HoldPieces(true);
  size_t before = 0;
  ASSERT_TRUE(Await([&] { return script_.in_prefill == 1; }));
  {
    std::lock_guard lock(script_.mutex);
    before = script_.pieces.size();
  }
  const auto other = Start(3);
  script_.HoldPieces(false);
  EXPECT_EQ(ReadAll(*other, 3).size(), 5U);
  std::lock_guard lock(script_.mutex);
  const auto first = std::find(script_.pieces.begin() + static_cast<ptrdiff_t>(before), script_.pieces.end(), 3U);
  ASSERT_GE(script_.pieces.end() - first, 19);
  for (int i = 0; i < 19; ++i) EXPECT_EQ(first[i], i % 2 == 0 ? 3U : 1U) << i;
}

// In the streaming layout a prompt has one row besides the common beginning.
TEST_F(SchedulerTest, PromptsThatTheBackendTakesTogetherShareACall) {
  script_.prompt_rows_together = 3;
  for (uint64_t seed = 1; seed <= 5; ++seed) script_.pieces_by_seed[seed] = kEndless;
  std::vector<std::shared_ptr<StreamState>> streams;
  for (uint64_t seed = 1; seed <= 5; ++seed) streams.push_back(Start(seed));
  ASSERT_TRUE(Await([&] { return std::set(script_.pieces.begin(), script_.pieces.end()).size() == 5; }));
  std::unique_lock lock(script_.mutex);
  const size_t all = script_.together.size() + 1;
  lock.unlock();
  ASSERT_TRUE(Await([&] { return script_.together.size() > all + 10; }));
  lock.lock();
  std::vector<uint64_t> order;
  for (size_t i = all; i < all + 10; ++i) {
    EXPECT_EQ(script_.together[i].size(), 3U);
    order.insert(order.end(), script_.together[i].begin(), script_.together[i].end());
  }
  for (size_t i = 5; i < order.size(); ++i) EXPECT_EQ(order[i], order[i - 5]) << i;
}

TEST_F(SchedulerTest, AmongPromptsTakenTogetherOneFailsAlone) {
  script_.prompt_rows_together = 100;
  script_.prefill_error_by_seed.emplace(2, Status::ResourceExhausted("no room"));
  for (const uint64_t seed : {1, 2, 3}) script_.pieces_by_seed[seed] = 50;
  const std::vector<std::shared_ptr<StreamState>> streams = {Start(1), Start(2), Start(3)};
  EXPECT_TRUE(ReadAll(*streams[1], 2).empty());
  EXPECT_EQ(streams[1]->status().message(), "no room");
  EXPECT_EQ(ReadAll(*streams[0], 1).size(), 5U);
  EXPECT_EQ(ReadAll(*streams[2], 3).size(), 5U);
}

// A stream that has just begun to speak has no unread frames, so the long prompt waits for three frames.
TEST_F(SchedulerTest, ALongPromptWaitsForWhoRunsShort) {
  script_.frames_by_seed[2] = 1000000;
  script_.pieces_by_seed[1] = kEndless;
  const auto endless = Start(1);
  ASSERT_TRUE(Await([&] { return script_.pieces.size() > 2; }));
  const auto speaking = Start(2);
  ASSERT_TRUE(Await([&] { return script_.text_by_seed[2].size() >= 6; }));
  std::lock_guard lock(script_.mutex);
  const size_t first = script_.order.find('f');
  EXPECT_EQ(script_.order.substr(first, 7), "fffpfpf") << script_.order.substr(0, first + 10);
}

TEST_F(SchedulerTest, CancelEndsAPromptAtItsNextPiece) {
  script_.pieces_by_seed[1] = kEndless;
  const auto stream = Start(1);
  ASSERT_TRUE(Await([&] { return script_.pieces.size() > 2; }));
  stream->Cancel();
  EXPECT_TRUE(Await([&] { return script_.open_slots == 0; }));
  EXPECT_EQ(ReadAll(*Start(2), 2).size(), 5U);
}

TEST_F(SchedulerTest, StoppingDoesNotWaitForAPrompt) {
  for (const uint64_t seed : {1, 2, 3}) script_.pieces_by_seed[seed] = kEndless;
  const std::vector<std::shared_ptr<StreamState>> streams = {Start(1), Start(2), Start(3)};
  ASSERT_TRUE(Await([&] { return script_.pieces.size() > 5; }));
  scheduler_.reset();
  for (const auto& stream : streams) EXPECT_EQ(stream->end_reason(), EndReason::kCancelled);
}

TEST_F(SchedulerTest, AFaultInMidPromptFailsItsStreamOnly) {
  script_.frames_by_seed[1] = 30;
  script_.pieces_by_seed[2] = 7;
  script_.prefill_error_by_seed.emplace(2, Status::ResourceExhausted("no room"));
  const auto good = Start(1);
  const auto bad = Start(2);
  EXPECT_TRUE(ReadAll(*bad, 2).empty());
  EXPECT_EQ(bad->end_reason(), EndReason::kError);
  EXPECT_EQ(bad->status().message(), "no room");
  EXPECT_EQ(ReadAll(*good, 1).size(), 30U);
}

TEST_F(SchedulerTest, DeviceLostInMidPromptFailsEveryStream) {
  script_.frames_by_seed[1] = script_.frames_by_seed[3] = 1000000;
  script_.pieces_by_seed[2] = 7;
  script_.prefill_error_by_seed.emplace(2, Status::DeviceUnavailable("no GPU"));
  const auto running = Start(1, "Hello.", false, 5);
  SettledText(1, 5);
  for (const auto& stream : {Start(2), running, Start(3)}) {
    Frame frame;
    while (stream->Read(&frame, true) == ReadState::kFrame) continue;
    EXPECT_EQ(stream->status().code(), StatusCode::kDeviceUnavailable);
  }
}

// --- more utterances than slots

TEST_F(SchedulerTest, WhatFindsNoSlotWaitsInOrder) {
  for (const int utterances : {65, 200}) {
    SCOPED_TRACE(utterances);
    script_.HoldPieces(true);
    std::vector<std::shared_ptr<StreamState>> streams;
    for (int i = 0; i < utterances; ++i) streams.push_back(Start(static_cast<uint64_t>(1000 + i)));
    script_.HoldPieces(false);
    for (int i = 0; i < utterances; ++i) {
      const auto seed = static_cast<uint64_t>(1000 + i);
      EXPECT_EQ(ReadAll(*streams[static_cast<size_t>(i)], seed).size(), 5U);
      EXPECT_EQ(streams[static_cast<size_t>(i)]->end_reason(), EndReason::kComplete);
    }
    ASSERT_TRUE(AwaitWaiting(0));
    std::lock_guard lock(script_.mutex);
    EXPECT_EQ(script_.most_open_slots, kDefaultVoices);
    EXPECT_TRUE(std::is_sorted(script_.pieces.begin(), script_.pieces.end())) << "first come, first served";
    EXPECT_EQ(script_.pieces.size(), static_cast<size_t>(utterances));
    script_.pieces.clear();
  }
}

TEST_F(SchedulerTest, OccupancyTellsSlotsAndWhoWaits) {
  script_.max_slots = 3;
  for (const uint64_t seed : {1, 2, 3, 4, 5}) script_.frames_by_seed[seed] = 1000000;
  EXPECT_EQ(scheduler().occupancy().slots, 3);
  EXPECT_EQ(scheduler().occupancy().free_slots, 3);
  std::vector<std::shared_ptr<StreamState>> streams;
  for (const uint64_t seed : {1, 2}) streams.push_back(Start(seed));
  ASSERT_TRUE(Await([&] { return script_.open_slots == 2; }));
  for (const uint64_t seed : {3, 4, 5}) streams.push_back(Start(seed));
  ASSERT_TRUE(AwaitWaiting(2));
  EXPECT_EQ(scheduler().occupancy().free_slots, 0);
  streams[4]->Cancel();  // frees its place in the queue at once
  ASSERT_TRUE(AwaitWaiting(1));
  EXPECT_EQ(streams[4]->end_reason(), EndReason::kCancelled);
  streams[0]->Cancel();  // frees its slot at once
  ASSERT_TRUE(AwaitWaiting(0));
  Frame frame;
  EXPECT_EQ(streams[3]->Read(&frame, true), ReadState::kFrame);
  for (const auto& stream : streams) stream->Cancel();
  ASSERT_TRUE(Await([&] { return script_.open_slots == 0; }));
}

TEST_F(SchedulerTest, WhatWouldNotWaitIsRefusedAtOnce) {
  script_.max_slots = 2;
  script_.frames_by_seed[1] = script_.frames_by_seed[2] = 1000000;
  const auto one = Start(1);
  const auto two = Start(2);
  ASSERT_TRUE(Await([&] { return script_.open_slots == 2; }));
  const auto refused = Start(3, "Hello.", false, 25, {}, false, std::chrono::nanoseconds(0));
  EXPECT_TRUE(ReadAll(*refused, 3).empty());
  EXPECT_EQ(refused->end_reason(), EndReason::kBusy);
  EXPECT_EQ(refused->status().code(), StatusCode::kBusy);
  EXPECT_NE(refused->status().message().find("all 2 slots"), std::string::npos) << refused->status().message();
  EXPECT_NE(refused->status().message().find("max-wait"), std::string::npos);
  one->Cancel();
  ASSERT_TRUE(Await([&] { return script_.open_slots == 1; }));
  EXPECT_EQ(ReadAll(*Start(4, "Hello.", false, 25, {}, false, std::chrono::nanoseconds(0)), 4).size(), 5U);
  two->Cancel();
}

TEST_F(SchedulerTest, WhatWaitedForLongEnoughIsRefused) {
  script_.max_slots = 1;
  script_.frames_by_seed[1] = 1000000;
  const auto speaking = Start(1);
  ASSERT_TRUE(Await([&] { return script_.open_slots == 1; }));
  const auto patient = Start(2);
  const auto start = std::chrono::steady_clock::now();
  const auto waiting = Start(3, "Hello.", false, 25, {}, false, milliseconds(60));
  EXPECT_TRUE(ReadAll(*waiting, 3).empty());
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(60));
  EXPECT_EQ(waiting->end_reason(), EndReason::kBusy);
  EXPECT_NE(waiting->status().message().find("60 ms"), std::string::npos) << waiting->status().message();
  speaking->Cancel();
  EXPECT_EQ(ReadAll(*patient, 2).size(), 5U);
}

// --- many voices

TEST_F(SchedulerTest, NewcomersToManyVoicesHaveTwoStepsOfTheirOwn) {
  script_.max_slots = 100;
  script_.beside_host = true;
  std::vector<std::shared_ptr<StreamState>> streams;
  for (uint64_t seed = 1; seed <= 20; ++seed) script_.frames_by_seed[seed] = 40;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    streams.push_back(Start(seed));
    std::this_thread::sleep_for(milliseconds(1));
  }
  for (uint64_t seed = 1; seed <= 20; ++seed) EXPECT_EQ(ReadAll(*streams[seed - 1], seed).size(), 40U);
  std::lock_guard lock(script_.mutex);
  std::map<uint64_t, int> frames;
  int own = 0, shared = 0;  // steps of newcomers
  for (const std::vector<uint64_t>& submission : script_.submissions) {
    const auto newcomers =
        std::count_if(submission.begin(), submission.end(), [&](uint64_t s) { return frames[s] < 2; });
    if (newcomers == static_cast<ptrdiff_t>(submission.size())) {
      ++own;
    } else if (newcomers != 0) {
      ++shared;
    }
    for (const uint64_t seed : submission) ++frames[seed];
  }
  // A machine that stands still for a while may make steps look too long for newcomers to have their own.
  EXPECT_GT(own, 4 * shared);
}

// Time of a stream's frame in a step, in us. A busy machine makes steps longer, never shorter.
class BusyDeviceTest : public SchedulerTest, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(, BusyDeviceTest,
                         ::testing::Values(1600,   // 30 ms a step: readers leave the device no rest
                                           3500),  // 66 ms a step: it would have none for newcomers at 80 ms a frame
                         ::testing::PrintToStringParamName());

// Where a step of all streams takes most of a frame's time, or readers take all frames that the device can make, there
// is no time for steps of newcomers alone.
TEST_P(BusyDeviceTest, NewcomersJoinTheOthers) {
  constexpr uint64_t kStreams = 19;
  constexpr uint64_t kNewcomer = 20;
  script_.max_slots = 100;
  script_.beside_host = true;
  script_.time_of_row = std::chrono::microseconds(GetParam());
  std::vector<std::shared_ptr<StreamState>> streams;
  for (uint64_t seed = 1; seed <= kNewcomer; ++seed) script_.frames_by_seed[seed] = 1000000;
  for (uint64_t seed = 1; seed <= kStreams; ++seed) streams.push_back(Start(seed));
  ReadUntilStepTimeIsKnown(streams);
  // As fast as it is played, so that nobody's next frame is due.
  std::atomic<bool> stop = false;
  std::thread reader([&] {
    while (!stop) {
      ReadFrameOfEach(streams);
      std::this_thread::sleep_for(std::chrono::milliseconds(80));
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const auto newcomer = Start(kNewcomer);
  Frame frame;
  EXPECT_EQ(newcomer->Read(&frame, true), ReadState::kFrame);
  stop = true;
  reader.join();
  // Some are in the step before.
  EXPECT_GE(RowsOfFirstStep(kNewcomer), kStreams / 3);
}

// There a step may take longer than a frame is played: the first frame waits for the second, or even for the third.
TEST_P(BusyDeviceTest, FirstFramesComeTogether) {
  constexpr uint64_t kStreams = 19;
  const size_t together = GetParam() == 3500 ? 3 : 2;
  script_.max_slots = 100;
  script_.beside_host = true;
  script_.time_of_row = std::chrono::microseconds(GetParam());
  for (uint64_t seed = 1; seed <= kStreams + 1; ++seed) script_.frames_by_seed[seed] = 1000000;
  std::vector<std::shared_ptr<StreamState>> streams;
  for (uint64_t seed = 1; seed <= kStreams; ++seed) streams.push_back(Start(seed));
  ReadUntilStepTimeIsKnown(streams);
  std::atomic<bool> stop = false;
  std::thread reader([&] {
    while (!stop) ReadFrameOfEach(streams);
  });
  const auto newcomer = Start(kStreams + 1);
  Frame frame;
  EXPECT_EQ(newcomer->Read(&frame, true), ReadState::kFrame);
  EXPECT_EQ(frame.index, 0);
  // Half a step at most, which is far more than the time between two deliveries.
  const auto until = std::chrono::steady_clock::now() + kStreams / 2 * script_.time_of_row;
  while (newcomer->unread() + 1 < together && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  const size_t unread = newcomer->unread();
  for (size_t i = 1; i < together; ++i) {
    EXPECT_EQ(newcomer->Read(&frame, true), ReadState::kFrame);
    EXPECT_EQ(frame.index, static_cast<int64_t>(i));
  }
  stop = true;
  reader.join();
  EXPECT_GE(unread + 1, together);
}

// Newcomers whose own steps fill the device's time leave none for the others' steps: those whose readers need a frame
// come along.
TEST_F(SchedulerTest, NewcomersTakeAlongWhoCannotWait) {
  constexpr uint64_t kStreams = 4;
  constexpr uint64_t kNewcomers = 150;
  constexpr auto kBetweenNewcomers = std::chrono::milliseconds(3);  // each has two steps of its own
  script_.max_slots = 400;
  script_.beside_host = true;
  script_.time_of_step = std::chrono::milliseconds(2);
  script_.time_of_row = std::chrono::microseconds(10);
  for (uint64_t seed = 1; seed <= kStreams; ++seed) script_.frames_by_seed[seed] = 1000000;
  for (uint64_t i = 1; i <= kNewcomers; ++i) script_.frames_by_seed[kStreams + i] = 2;
  std::vector<std::shared_ptr<StreamState>> streams;
  for (uint64_t seed = 1; seed <= kStreams; ++seed) streams.push_back(Start(seed));
  ReadUntilStepTimeIsKnown(streams);
  std::vector<std::shared_ptr<StreamState>> newcomers;
  Frame frame;
  int read = 0;
  auto next = std::chrono::steady_clock::now();
  for (uint64_t i = 1; i <= kNewcomers; ++i) {
    newcomers.push_back(Start(kStreams + i));
    next += kBetweenNewcomers;
    std::this_thread::sleep_until(next);
    for (const auto& stream : streams) {
      while (stream->Read(&frame, false) == ReadState::kFrame) ++read;
    }
  }
  // In 450 ms and more there is time for more than 100 frames of each, on a slow host for fewer.
  EXPECT_GE(read, 10 * static_cast<int>(kStreams));
}

// A device that always has frames in store to make has time for newcomers. A step of all takes 8 ms: on a loaded host,
// whose steps take longer, too little for the device to be busy, which would end the making of frames in store.
TEST_F(SchedulerTest, FramesInStoreLeaveTimeForNewcomers) {
  constexpr uint64_t kStreams = 19;
  constexpr uint64_t kNewcomer = 20;
  constexpr size_t kStore = 1000;
  script_.max_slots = 100;
  script_.beside_host = true;
  script_.time_of_row = std::chrono::microseconds(400);
  for (uint64_t seed = 1; seed <= kNewcomer; ++seed) script_.frames_by_seed[seed] = 1000000;
  std::vector<std::shared_ptr<StreamState>> streams;
  for (uint64_t seed = 1; seed <= kStreams; ++seed) streams.push_back(Start(seed, "Hello.", false, kStore));
  // Until a step's time is known.
  ASSERT_TRUE(Await([&] { return script_.submissions.size() > 60; }));
  const auto newcomer = Start(kNewcomer);
  Frame frame;
  ASSERT_EQ(newcomer->Read(&frame, true), ReadState::kFrame);
  EXPECT_EQ(RowsOfFirstStep(kNewcomer), 1U);
}

// The second frame is submitted before the first is collected. Otherwise a step of others would come between them.
TEST_F(SchedulerTest, AmongManyVoicesTheFirstTwoFramesAreSubmittedTogether) {
  script_.beside_host = true;
  script_.max_outstanding = 3;
  for (const int slots : {100, kDefaultVoices}) {
    script_.max_slots = slots;
    scheduler_ = nullptr;
    script_.SetGate(false);
    const auto seed = static_cast<uint64_t>(slots);
    const auto stream = Start(seed);
    EXPECT_EQ(SettledText(seed, slots == 100 ? 2 : 1).size(), slots == 100 ? 2U : 1U);
    script_.SetGate(true);
    EXPECT_EQ(ReadAll(*stream, seed).size(), 5U);
  }
}

TEST_F(SchedulerTest, StreamsWithFramesInStoreAreGatheredWithManyVoices) {
  constexpr size_t kStreams = 40;
  script_.max_slots = 100;
  script_.beside_host = true;
  script_.frames_by_seed[99] = 60;
  for (uint64_t seed = 1; seed <= kStreams; ++seed) script_.frames_by_seed[seed] = 1000000;
  EXPECT_EQ(ReadAll(*Start(99), 99).size(), 60U);  // the scheduler now has a measured time of a step
  ASSERT_TRUE(Await([&] { return script_.open_slots == 0; }));
  {
    std::lock_guard lock(script_.mutex);
    script_.text_by_seed.clear();
  }
  std::vector<std::shared_ptr<StreamState>> streams;
  for (uint64_t seed = 1; seed <= kStreams; ++seed) streams.push_back(Start(seed));
  const auto steps = [&] {
    std::lock_guard lock(script_.mutex);
    size_t rows = 0;
    for (const std::vector<uint64_t>& submission : script_.submissions) rows += submission.size();
    return std::pair(script_.submissions.size(), rows);
  };
  ASSERT_TRUE(Await([&] {
    return std::all_of(script_.text_by_seed.begin(), script_.text_by_seed.end(),
                       [](const auto& text) { return text.second.size() == 25; }) &&
           script_.text_by_seed.size() == kStreams;
  }));
  const auto full = steps();
  Frame frame;
  for (size_t i = 0; i < 4; ++i) ASSERT_EQ(streams[i]->Read(&frame, true), ReadState::kFrame) << i;
  // Four are fewer than an eighth of all: the idle device waits an eighth of 80 ms for others.
  const auto rows = [&] {
    size_t sum = 0;
    for (const std::vector<uint64_t>& submission : script_.submissions) sum += submission.size();
    return sum;
  };
  ASSERT_TRUE(Await([&] { return rows() == full.second + 4; }));
  for (int i = 0; i < 100; ++i) {
    for (const auto& stream : streams) ASSERT_EQ(stream->Read(&frame, true), ReadState::kFrame);
  }
  const auto later = steps();
  EXPECT_GE(later.second - full.second, (later.first - full.first) * 3)
      << "steps of many, though reads come one by one";
  // A reader that takes every frame has none in store, so its stream is stepped at once.
  for (int i = 0; i < 100; ++i) ASSERT_EQ(streams[6]->Read(&frame, true), ReadState::kFrame);
}

// A step of one stream takes more than 72 ms. A busy machine makes it longer, never shorter, so noise in the step model
// does not change the result.
TEST_F(SchedulerTest, NobodyIsAdmittedForWhomTheDeviceHasNoTime) {
  script_.max_slots = 100;
  script_.beside_host = true;
  script_.time_of_row = milliseconds(75);
  script_.frames_by_seed[1] = 1000000;
  const auto speaking = Start(1);
  Frame frame;
  for (int i = 0; i < 33; ++i) ASSERT_EQ(speaking->Read(&frame, true), ReadState::kFrame);
  std::vector<std::shared_ptr<StreamState>> more;
  for (uint64_t seed = 2; seed <= 31; ++seed) {
    more.push_back(Start(seed, "Hello.", false, 25, {}, false, milliseconds(300)));
  }
  for (const auto& stream : more) {
    ASSERT_EQ(stream->Read(&frame, true), ReadState::kEnd);
    EXPECT_EQ(stream->end_reason(), EndReason::kBusy);
    EXPECT_NE(stream->status().message().find("the device has no time for another"), std::string::npos)
        << stream->status().message();
  }
  {
    std::lock_guard lock(script_.mutex);
    EXPECT_EQ(script_.most_open_slots, 1);
  }
  // The speaking stream goes on, and the next one gets the free slot.
  ASSERT_EQ(speaking->Read(&frame, true), ReadState::kFrame);
  speaking->Cancel();
  EXPECT_EQ(ReadAll(*Start(99), 99).size(), 5U);
}

std::string slow_lines;  // of level debug, written on the scheduler's thread
constexpr LogSink kSlowLines = {[](LogLevel level) { return level == LogLevel::kDebug; },
                                [](LogLevel, const char* line) {
                                  if (std::string_view(line).find("slower") == std::string_view::npos) return;
                                  slow_lines += std::string(line) + "\n";
                                }};

// Speech that is not real-time has no deadlines, so long steps do not indicate a slow device.
TEST_F(SchedulerTest, LongStepsAreNoSlowDeviceWhileNoUtteranceIsRealTime) {
  for (const bool real_time : {false, true}) {
    slow_lines.clear();
    SetLogSink(&kSlowLines);
    script_.max_slots = 100;
    script_.beside_host = true;
    script_.time_of_row = milliseconds(85);
    script_.frames_by_seed[1] = 1000000;
    Request request;
    request.text = "Hello.";
    request.seed = 1;
    request.real_time = real_time;
    const auto stream = StartRequest(request);
    Frame frame;
    for (int i = 0; i < 42; ++i) ASSERT_EQ(stream->Read(&frame, true), ReadState::kFrame);
    stream->Cancel();
    scheduler_.reset();
    SetLogSink(nullptr);
    EXPECT_EQ(slow_lines.empty(), !real_time) << slow_lines;
  }
}

// A step of one stream takes more than 72 ms here, too.
TEST_F(SchedulerTest, AdmissionIgnoresTheTimeOfUtterancesThatAreNotRealTime) {
  constexpr uint64_t kRealTime = 50;
  script_.max_slots = 100;
  script_.beside_host = true;
  script_.time_of_row = milliseconds(75);
  const auto start = [this](uint64_t seed, bool real_time, std::chrono::nanoseconds max_wait) {
    {
      std::lock_guard lock(script_.mutex);
      script_.frames_by_seed[seed] = 1000000;
    }
    Request request;
    request.text = "Hello.";
    request.seed = seed;
    request.real_time = real_time;
    request.max_wait = max_wait;
    return StartRequest(request);
  };
  const auto is_open = [this](int slots) { return Await([this, slots] { return script_.open_slots == slots; }); };
  std::vector<std::shared_ptr<StreamState>> streams = {start(1, false, Request::kNoLimit)};
  Frame frame;
  for (int i = 0; i < 33; ++i) ASSERT_EQ(streams[0]->Read(&frame, true), ReadState::kFrame);
  for (uint64_t seed = 2; seed <= 4; ++seed) streams.push_back(start(seed, false, Request::kNoLimit));
  ASSERT_TRUE(is_open(4)) << "no matter how long a step takes";

  // They give way to a real-time utterance, which begins at once.
  const auto real_time = start(kRealTime, true, Request::kNoLimit);
  ASSERT_EQ(real_time->Read(&frame, true), ReadState::kFrame);
  streams.push_back(start(5, false, Request::kNoLimit));
  ASSERT_TRUE(is_open(6)) << "beside it, too";
  const auto refused = start(kRealTime + 1, true, milliseconds(300));
  EXPECT_EQ(refused->Read(&frame, true), ReadState::kEnd);
  EXPECT_EQ(refused->end_reason(), EndReason::kBusy) << "for a second one there is no time";
  real_time->Cancel();
  for (const auto& stream : streams) stream->Cancel();
}

// Reads a stream to its end on a thread of its own, as fast as it comes.
class FastReader {
 public:
  explicit FastReader(std::shared_ptr<StreamState> stream)
      : stream_(std::move(stream)), thread_([this] {
          Frame frame;
          while (stream_->Read(&frame, true) == ReadState::kFrame) ++frames_;
        }) {}
  ~FastReader() {
    stream_->Cancel();
    thread_.join();
  }
  FastReader(const FastReader&) = delete;
  FastReader& operator=(const FastReader&) = delete;
  int frames() const { return frames_; }

 private:
  std::shared_ptr<StreamState> stream_;
  std::atomic<int> frames_ = 0;
  std::thread thread_;
};

// A step of all 21 streams would take 210 ms, in which a real-time stream is played for 80. A busy machine makes steps
// longer, never shorter, which leaves even fewer in a step.
TEST_F(SchedulerTest, UtterancesThatAreNotRealTimeGiveWay) {
  constexpr uint64_t kRealTime = 50;
  constexpr int kFiles = 20;
  constexpr size_t kRowsOfAFrame = 10;  // 8, and what the prediction may be off
  for (const int slots : {kDefaultVoices, 2 * kDefaultVoices}) {
    script_.max_slots = slots;
    script_.beside_host = slots > kDefaultVoices;
    script_.time_of_row = milliseconds(10);
    script_.submissions.clear();
    Request request;
    request.text = "Hello.";
    const auto start = [&](uint64_t seed, bool real_time, int frames) {
      {
        std::lock_guard lock(script_.mutex);
        script_.frames_by_seed[seed] = frames;
      }
      request.seed = seed;
      request.real_time = real_time;
      return StartRequest(request);
    };
    {
      ReadAll(*start(kRealTime + 1, false, 40), kRealTime + 1);  // teaches the scheduler the time of a step
      std::deque<FastReader> files;
      for (uint64_t seed = 1; seed <= kFiles; ++seed) files.emplace_back(start(seed, false, 1000000));
      ASSERT_TRUE(Await([this] {
        return std::count_if(script_.submissions.begin(), script_.submissions.end(),
                             [](const auto& step) { return step.size() == kFiles; }) >= 4;
      }));
      size_t begin = 0;
      {
        std::lock_guard lock(script_.mutex);
        begin = script_.submissions.size();
      }
      const auto live = start(kRealTime, true, 30);
      EXPECT_EQ(ReadAll(*live, kRealTime).size(), 30U);
      std::lock_guard lock(script_.mutex);
      std::map<uint64_t, int> frames;
      bool speaks = false;
      for (size_t i = begin; i < script_.submissions.size(); ++i) {
        const std::vector<uint64_t>& step = script_.submissions[i];
        const auto has_live = std::count(step.begin(), step.end(), kRealTime) > 0;
        if (has_live) {
          EXPECT_LE(step.size(), speaks ? kRowsOfAFrame : 2) << "step " << i - begin;
          speaks = true;
        }
        if (!speaks) continue;
        for (const uint64_t seed : step) ++frames[seed];
      }
      // Each in its turn.
      for (uint64_t seed = 1; seed <= kFiles; ++seed) EXPECT_NEAR(frames[seed], frames[1], 2) << seed;
      EXPECT_GE(frames[1], 1) << "no one is left out for ever";
    }
    scheduler_.reset();
  }
}

// A file is made beside a real-time stream that has no text for now, or whose reader does not read.
TEST_F(SchedulerTest, NobodyGivesWayToARealTimeStreamThatCannotGoOn) {
  constexpr uint64_t kFile = 9;
  script_.time_of_row = std::chrono::microseconds(100);
  script_.frames_by_seed = {{1, 1000000}, {2, 1000000}, {kFile, 100}};
  const auto awaits_text = Start(1, "Hello", true);
  const auto not_read = Start(2, "Hello.", false, 1);
  ASSERT_TRUE(AwaitOccupancy([](const Occupancy& now) { return now.steps > 0; }));
  Request request;
  request.text = "Hello.";
  request.seed = kFile;
  request.real_time = false;
  EXPECT_EQ(ReadAll(*StartRequest(request), kFile).size(), 100U);
  awaits_text->Cancel();
  not_read->Cancel();
}

TEST_F(SchedulerTest, OccupancyCountsSteps) {
  EXPECT_EQ(scheduler().occupancy().steps, 0U);
  script_.time_of_row = milliseconds(1);
  script_.frames_by_seed[2] = 3;
  for (const uint64_t seed : {1, 2}) ReadAll(*Start(seed), seed);
  // 5 and 3 frames, and for each utterance one more step that reports the end.
  ASSERT_TRUE(AwaitOccupancy([](const Occupancy& now) { return now.steps == 10; }));
  EXPECT_EQ(scheduler().occupancy().step_frames, 10U);
  EXPECT_GE(scheduler().occupancy().step_nanoseconds, 10 * 1000000);
}

// --- pages

TEST_F(SchedulerTest, OccupancyTellsPages) {
  script_.page_positions = 32;
  script_.pages = 8;
  script_.frames_by_seed[1] = 1000000;
  EXPECT_EQ(scheduler().occupancy().pages, 8);
  EXPECT_EQ(scheduler().occupancy().free_pages, 8);
  const auto stream = Start(1, "Hello.", false, 2);
  ASSERT_TRUE(AwaitOccupancy([](const Occupancy& now) { return now.free_pages == 7; }));
  stream->Cancel();
  ASSERT_TRUE(AwaitOccupancy([](const Occupancy& now) { return now.free_pages == 8; }));
  EXPECT_EQ(scheduler().occupancy().pages, 8);
}

TEST_F(SchedulerTest, AnUtteranceWaitsWhileThePagesDoNotHoldIt) {
  script_.page_positions = 32;
  script_.pages = 8;  // a prompt and its first frames need one or two pages; each speaking stream keeps one in reserve
  std::vector<std::shared_ptr<StreamState>> streams;
  for (uint64_t seed = 1; seed <= 6; ++seed) script_.frames_by_seed[seed] = 1000000;
  for (uint64_t seed = 1; seed <= 6; ++seed) streams.push_back(Start(seed, "Hello.", false, 2));
  // A prompt takes one page. After four of them four pages are free: the reserve of each stream, none for a fifth.
  constexpr int kAdmitted = 4;
  ASSERT_TRUE(Await([&] { return script_.open_slots == kAdmitted; }));
  ASSERT_TRUE(AwaitWaiting(6 - kAdmitted));
  EXPECT_GT(scheduler().occupancy().free_slots, 0);
  const auto refused = Start(7, "Hello.", false, 25, {}, false, milliseconds(20));
  EXPECT_TRUE(ReadAll(*refused, 7).empty());
  EXPECT_EQ(refused->end_reason(), EndReason::kBusy);
  EXPECT_EQ(refused->status().code(), StatusCode::kBusy);
  EXPECT_NE(refused->status().message().find("of 8 pages are free"), std::string::npos) << refused->status().message();
  Frame frame;
  for (const auto& stream : streams) {
    EXPECT_EQ(stream->Read(&frame, true), ReadState::kFrame) << stream->status().message();
    stream->Cancel();
  }
}

// Contexts are short when utterances begin, so many more would begin than can go on to their ends.
TEST_F(SchedulerTest, AsManyBeginAsThePagesWillHoldAtTheirEnds) {
  script_.page_positions = 32;
  script_.pages = 64;
  constexpr int kStreams = 20;
  Streams streams;
  for (uint64_t seed = 1; seed <= kStreams; ++seed) script_.frames_by_seed[seed] = 1000000;
  for (uint64_t seed = 1; seed <= kStreams; ++seed) {
    Request request;
    request.text = "Several words of a text that is long enough for some two hundred frames.";
    request.seed = seed;
    request.settings.max_new_tokens = 200;
    streams.push_back(StartRequest(request, 2));
  }
  // Each will have 200 positions and those of its prompt, 7 pages: 8 of them take 56 of the 61 that are not kept back.
  ASSERT_TRUE(Await([&] { return script_.open_slots == 8; }));
  ASSERT_TRUE(AwaitWaiting(kStreams - 8));
  EXPECT_GT(scheduler().occupancy().free_pages, 40);
  // Where one ends, another begins.
  streams.front()->Cancel();
  ASSERT_TRUE(AwaitWaiting(kStreams - 9));
  for (const auto& stream : streams) stream->Cancel();
}

// One that ends early leaves its pages to those that need them later.
TEST_F(SchedulerTest, ShortUtterancesBeginBesideLongOnes) {
  script_.page_positions = 32;
  script_.pages = 64;
  for (uint64_t seed = 1; seed <= 13; ++seed) script_.frames_by_seed[seed] = 1000000;
  Streams streams;
  const auto start = [&](uint64_t seed, int64_t max_new_tokens) {
    Request request;
    request.text = "Several words of a text that is long enough for some two hundred frames.";
    request.seed = seed;
    request.settings.max_new_tokens = max_new_tokens;
    streams.push_back(StartRequest(request, 2));
  };
  for (uint64_t seed = 1; seed <= 8; ++seed) start(seed, 200);
  ASSERT_TRUE(Await([&] { return script_.open_slots == 8; }));
  for (uint64_t seed = 9; seed <= 12; ++seed) start(seed, 20);
  ASSERT_TRUE(Await([&] { return script_.open_slots == 12; }));
  start(13, 200);
  ASSERT_TRUE(AwaitWaiting(1));
  for (const auto& stream : streams) stream->Cancel();
}

TEST_F(SchedulerTest, APromptThatNeedsMoreThanAllPagesFailsAtOnce) {
  script_.page_positions = 2;
  script_.pages = 100;
  script_.frames_by_seed[1] = 1000000;
  const auto speaking = Start(1, "Hello.", false, 2);
  ASSERT_TRUE(Await([&] { return script_.open_slots == 1; }));
  std::string text;
  for (int i = 0; i < 400; ++i) text += " word";
  Request request;
  request.text = text;
  request.layout = PromptLayout::kNonStreaming;
  const auto large = std::make_shared<StreamState>(prompts_, tokenizer_, request, 25, std::function<void()>());
  ASSERT_TRUE(large->Begin().ok());
  scheduler().Add(large);
  Frame frame;
  EXPECT_EQ(large->Read(&frame, true), ReadState::kEnd);
  EXPECT_EQ(large->end_reason(), EndReason::kError);
  EXPECT_EQ(large->status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(speaking->Read(&frame, true), ReadState::kFrame);
  speaking->Cancel();
}

// Two speaking streams fill their leads until no page is free. The first one is further ahead.
class FullPagesTest : public SchedulerTest {
 protected:
  static constexpr size_t kFirstLead = 30;
  static constexpr size_t kSecondLead = 5;
  static constexpr int kFrames = 40;  // of each stream; all pages together hold one utterance

  void StartBoth(int64_t host_pages = 1000) {
    script_.page_positions = 4;
    script_.pages = 1000;
    script_.host_pages = host_pages;
    for (const uint64_t seed : {1, 2, 3}) script_.frames_by_seed[seed] = kFrames;
    first_ = Start(1, "Hello.", false, kFirstLead);
    second_ = Start(2, "Hello.", false, kSecondLead);
    SettledText(1, kFirstLead);
    SettledText(2, kSecondLead);
    SetPages(0);
  }
  // Sets the number of pages to those in use and `more`.
  void SetPages(int64_t more) {
    std::lock_guard lock(script_.mutex);
    script_.pages = script_.taken_pages + more;
  }
  void TearDown() override {
    SchedulerTest::TearDown();
    EXPECT_EQ(script_.taken_pages, 0);
    EXPECT_EQ(script_.parked_pages, 0);
  }
  static void Read(StreamState& stream, int frames) {
    Frame frame;
    for (int i = 0; i < frames; ++i) ASSERT_EQ(stream.Read(&frame, true), ReadState::kFrame) << i;
  }
  // Expects the frames of a stream from number `read` to kFrames.
  static void ExpectRest(StreamState& stream, uint64_t seed, int64_t read) {
    Frame frame;
    for (; stream.Read(&frame, true) == ReadState::kFrame; ++read) {
      EXPECT_EQ(frame.index, read);
      EXPECT_EQ(frame.codes.at(0), read);
      EXPECT_FLOAT_EQ(frame.pcm.at(0), static_cast<float>(seed) + static_cast<float>(read) / 1000.0F);
    }
    EXPECT_EQ(read, kFrames);
    EXPECT_EQ(stream.end_reason(), EndReason::kComplete) << stream.status().message();
  }
  bool AwaitParked(int streams) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (scheduler().occupancy().parked != streams) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return true;
  }

  std::shared_ptr<StreamState> first_;
  std::shared_ptr<StreamState> second_;
};

TEST_F(FullPagesTest, TheStreamFurthestAheadIsParkedAndComesBack) {
  StartBoth();
  Read(*second_, 8);
  EXPECT_TRUE(AwaitParked(1));
  {
    std::lock_guard lock(script_.mutex);
    EXPECT_EQ(script_.parkings_by_seed[1], 1);
    EXPECT_EQ(script_.parkings_by_seed[2], 0);
  }
  EXPECT_EQ(scheduler().occupancy().parkings, 1U);
  EXPECT_GT(scheduler().occupancy().pages, 0);
  // Pages are free again: the stream returns as soon as its reader makes room.
  SetPages(1000);
  Read(*first_, 1);
  EXPECT_TRUE(AwaitParked(0));
  ExpectRest(*first_, 1, 1);
  ExpectRest(*second_, 2, 8);
}

std::string parking_lines;  // of level info, written on the scheduler's thread
constexpr LogSink kParkingLines = {[](LogLevel level) { return level == LogLevel::kInfo; },
                                   [](LogLevel, const char* line) { parking_lines += std::string(line) + "\n"; }};

TEST_F(FullPagesTest, TheLogTellsWhenParkingBeginsAndEnds) {
  SetLogSink(&kParkingLines);
  parking_lines.clear();
  StartBoth();
  for (int round = 0; round < 3; ++round) {
    Read(*second_, 8);
    EXPECT_TRUE(AwaitParked(1));
    SetPages(1000);
    Read(*first_, 1);
    EXPECT_TRUE(AwaitParked(0));
    SettledText(1, kFirstLead + static_cast<size_t>(round) + 1);
    SettledText(2, kSecondLead + static_cast<size_t>(round + 1) * 8);
    SetPages(0);
  }
  scheduler_.reset();
  SetLogSink(nullptr);
  EXPECT_EQ(std::count(parking_lines.begin(), parking_lines.end(), '\n'), 2) << parking_lines;
  EXPECT_NE(parking_lines.find("pages are in use"), std::string::npos) << parking_lines;
  EXPECT_NE(parking_lines.find("since the last such line: 1"), std::string::npos) << parking_lines;
}

TEST_F(FullPagesTest, AParkedStreamComesBackInAnothersPlace) {
  StartBoth();
  Read(*second_, 8);
  EXPECT_TRUE(AwaitParked(1));
  // The second stream is no longer read, so the first one needs pages.
  ExpectRest(*first_, 1, 0);
  ExpectRest(*second_, 2, 8);
  std::lock_guard lock(script_.mutex);
  EXPECT_GE(script_.parkings_by_seed[2], 1);
}

TEST_F(FullPagesTest, NobodyBeginsWhileThePagesOfParkedStreamsAreMissing) {
  StartBoth();
  Read(*second_, 8);
  EXPECT_TRUE(AwaitParked(1));
  const auto waiting = Start(3);
  ASSERT_TRUE(AwaitWaiting(1));
  ExpectRest(*first_, 1, 0);
  ExpectRest(*second_, 2, 8);
  EXPECT_EQ(ReadAll(*waiting, 3).size(), size_t{kFrames}) << "now there is room";
}

// A parked stream that nobody reads does not keep others from beginning once there are pages for both.
TEST_F(FullPagesTest, AParkedStreamThatNobodyReadsKeepsNobodyOut) {
  StartBoth();
  Read(*second_, 8);
  EXPECT_TRUE(AwaitParked(1));
  SetPages(1000);
  EXPECT_EQ(ReadAll(*Start(3), 3).size(), size_t{kFrames});
  EXPECT_EQ(scheduler().occupancy().parked, 1);
  first_->Cancel();
  EXPECT_TRUE(AwaitParked(0));
  second_->Cancel();
}

// Three parked streams need their next frame at once. Each comes back in exchange for another, and some time passes
// between two exchanges.
TEST_F(SchedulerTest, ExchangesLeaveTimeForOthers) {
  constexpr int64_t kStreams = 6;
  constexpr size_t kLeastFrames = 60;
  script_.page_positions = 1;
  script_.pages = 100000;
  std::string text = "Hello";
  for (size_t i = 0; i < kLeastFrames + 10; ++i) text += " word";
  Streams streams;
  for (uint64_t seed = 0; seed < kStreams; ++seed) script_.frames_by_seed[seed] = 1000;
  for (uint64_t seed = 0; seed < kStreams; ++seed) streams.push_back(Start(seed, text, true, 1000));
  for (uint64_t seed = 0; seed < kStreams; ++seed) SettledText(seed, kLeastFrames);
  {
    const std::lock_guard lock(script_.mutex);
    script_.pages = script_.taken_pages / 2 + 30;
  }
  // The reader of one takes some frames, so it is not the one that is furthest ahead. Its next frame needs a page, for
  // which three others are parked.
  Frame frame;
  for (int i = 0; i < 10; ++i) ASSERT_EQ(streams[0]->Read(&frame, true), ReadState::kFrame);
  ASSERT_TRUE(streams[0]->Append(" and this, and that.").ok());
  ASSERT_TRUE(AwaitOccupancy([](const Occupancy& now) { return now.parked == 3; }));
  Streams parked;
  for (uint64_t seed = 0; seed < kStreams; ++seed) {
    const std::lock_guard lock(script_.mutex);
    if (script_.parkings_by_seed[seed] > 0) parked.push_back(streams[seed]);
  }
  ASSERT_EQ(parked.size(), 3U);
  for (const auto& stream : parked) {
    while (stream->Read(&frame, false) == ReadState::kFrame) continue;
  }
  const auto start = std::chrono::steady_clock::now();
  for (const auto& stream : parked) ASSERT_TRUE(stream->Append(" and this, and that.").ok());
  ReadFrameOfEach(parked);
  constexpr auto kLeastTime = 2 * kLeastFrames * std::chrono::microseconds(300);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 2 * kLeastTime);
  for (const auto& stream : streams) stream->Cancel();
}

// A step takes 50 ms, so streams are a few frames ahead of their readers, until no page is free.
TEST_F(SchedulerTest, WhilePagesAreShortStreamsOfABusyDeviceGetAhead) {
  constexpr size_t kLead = 20;
  script_.max_slots = 2 * kDefaultVoices;
  script_.max_outstanding = 2;
  script_.beside_host = true;
  script_.time_of_step = milliseconds(50);
  script_.page_positions = 1000;
  script_.pages = 1000;
  for (const uint64_t seed : {1, 2}) script_.frames_by_seed[seed] = 1000;
  const Streams streams = {Start(1, "Hello.", false, kLead), Start(2, "Hello.", false, kLead)};
  ReadUntilStepTimeIsKnown(streams);
  std::this_thread::sleep_for(milliseconds(500));
  const size_t before = script_.Text(1).size();
  EXPECT_LT(before, 40 + kLead / 2);
  {
    const std::lock_guard lock(script_.mutex);
    script_.pages = script_.taken_pages;
  }
  ReadFrameOfEach(streams);
  EXPECT_EQ(SettledText(1, 41 + kLead).size(), 41 + kLead);
  for (const auto& stream : streams) stream->Cancel();
}

TEST_F(FullPagesTest, WithoutHostMemoryAStreamWaitsForPages) {
  StartBoth(/*host_pages=*/0);
  // The number of frames for which it has pages: the step that needs another page is not submitted.
  const auto has_come = [&] {
    Frame frame;
    int frames = 0;
    while (second_->Read(&frame, false) == ReadState::kFrame) ++frames;
    return frames;
  };
  int read = 0;
  for (int i = 0; i < 50; ++i) {
    read += has_come();
    std::this_thread::sleep_for(milliseconds(2));
  }
  EXPECT_LT(read, 20);
  EXPECT_EQ(second_->end_reason(), EndReason::kNone);
  first_->Cancel();
  ExpectRest(*second_, 2, read);
}

TEST_F(FullPagesTest, IfNobodyCanGoOnTheOneThatCameLastEnds) {
  StartBoth(/*host_pages=*/0);
  std::thread reader([&] { ExpectRest(*first_, 1, 0); });
  Frame frame;
  while (second_->Read(&frame, true) == ReadState::kFrame) continue;
  EXPECT_EQ(second_->end_reason(), EndReason::kError);
  EXPECT_EQ(second_->status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(second_->status().message().find("none can be parked"), std::string::npos) << second_->status().message();
  reader.join();
}

TEST_F(FullPagesTest, AnUtteranceThatAllPagesDoNotHoldEnds) {
  script_.page_positions = 4;
  script_.pages = 10;
  script_.frames_by_seed[1] = 100;
  const auto stream = Start(1);
  EXPECT_LT(ReadAll(*stream, 1).size(), 40U);
  EXPECT_EQ(stream->end_reason(), EndReason::kError);
  EXPECT_NE(stream->status().message().find("10 pages"), std::string::npos) << stream->status().message();
  script_.frames_by_seed[2] = 3;
  EXPECT_EQ(ReadAll(*Start(2), 2).size(), 3U);
}

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
  const auto stream = Start(1, "Hello.", false, 25, [&] { ++calls; });
  ReadAll(*stream, 1);
  scheduler_.reset();
  EXPECT_EQ(calls, 6);
}

TEST_F(SchedulerTest, StoppingEndsRunningStreams) {
  script_.frames_by_seed[1] = 1000000;
  const auto running = Start(1, "Hello.", false, 5);
  SettledText(1, 5);
  scheduler_.reset();
  EXPECT_EQ(running->end_reason(), EndReason::kCancelled);
}

TEST_F(SchedulerTest, ManyThreadsStartAppendReadAndCancel) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  script_.max_outstanding = 2;
  script_.beside_host = true;
  scheduler();
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 6; ++t) {
    threads.emplace_back([this, seed, t] {
      std::mt19937 random(seed + t);
      for (int i = 0; i < 40; ++i) {
        if (random() % 2 == 0) scheduler_->Expect();
        const auto stream = Start(t, "Go", true, 1 + random() % 4);
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
