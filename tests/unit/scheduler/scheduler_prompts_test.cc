// SPDX-License-Identifier: LGPL-2.1-or-later
// Prompts in pieces, and more utterances than slots.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "scheduler/scheduler.h"
#include "scheduler_fixture.h"

namespace qtts {
namespace {

using std::chrono::milliseconds;

// Number of pieces of a prompt that does not end within a test, even on a busy machine.
constexpr int kEndless = 30000000;

// --- prompts in pieces

// A speaking stream gets a frame between two pieces of a long prompt.
// Check: 32
TEST_F(SchedulerTest, FramesOfOthersComeBetweenThePiecesOfAPrompt) {
  script_->frames_by_seed[1] = 1000000;
  script_->pieces_by_seed[2] = kEndless;
  const auto speaking = Start(1, {.lead = 5});
  Frame frame;
  ASSERT_EQ(speaking->Read(&frame, true), ReadState::kFrame);
  const auto waiting = Start(2);
  ASSERT_TRUE(Await([&] { return script_->pieces.size() > 2; }));
  for (int i = 0; i < 50; ++i) ASSERT_EQ(speaking->Read(&frame, true), ReadState::kFrame);
  EXPECT_EQ(waiting->Read(&frame, false), ReadState::kPending);
  EXPECT_TRUE(script_.Text(2).empty());
}

// A short prompt waits for at most one piece of an earlier long one.
// Check: 32
TEST_F(SchedulerTest, PromptsTakeTurns) {
  script_->pieces_by_seed[1] = kEndless;
  script_->pieces_by_seed[3] = 10;
  const auto endless = Start(1);
  ASSERT_TRUE(Await([&] { return script_->pieces.size() > 2; }));
  EXPECT_EQ(ReadAll(*Start(2), 2).size(), 5U);
  script_.HoldPieces(true);
  size_t before = 0;
  ASSERT_TRUE(Await([&] { return script_->in_prefill == 1; }));
  before = script_->pieces.size();
  const auto other = Start(3);
  script_.HoldPieces(false);
  EXPECT_EQ(ReadAll(*other, 3).size(), 5U);
  const auto script = script_.Lock();
  const auto first = std::find(script->pieces.begin() + static_cast<ptrdiff_t>(before), script->pieces.end(), 3U);
  ASSERT_GE(script->pieces.end() - first, 19);
  for (int i = 0; i < 19; ++i) EXPECT_EQ(first[i], i % 2 == 0 ? 3U : 1U) << i;
}

// In the streaming layout a prompt has one row besides the common beginning.
TEST_F(SchedulerTest, PromptsThatTheBackendTakesTogetherShareACall) {
  script_->prompt_rows_together = 3;
  for (uint64_t seed = 1; seed <= 5; ++seed) script_->pieces_by_seed[seed] = kEndless;
  std::vector<std::shared_ptr<StreamState>> streams;
  for (uint64_t seed = 1; seed <= 5; ++seed) streams.push_back(Start(seed));
  ASSERT_TRUE(Await([&] { return std::set(script_->pieces.begin(), script_->pieces.end()).size() == 5; }));
  const size_t all = script_->together.size() + 1;
  ASSERT_TRUE(Await([&] { return script_->together.size() > all + 10; }));
  const auto script = script_.Lock();
  std::vector<uint64_t> order;
  for (size_t i = all; i < all + 10; ++i) {
    EXPECT_EQ(script->together[i].size(), 3U);
    order.insert(order.end(), script->together[i].begin(), script->together[i].end());
  }
  for (size_t i = 5; i < order.size(); ++i) EXPECT_EQ(order[i], order[i - 5]) << i;
}

TEST_F(SchedulerTest, AmongPromptsTakenTogetherOneFailsAlone) {
  script_->prompt_rows_together = 100;
  script_->prefill_error_by_seed.emplace(2, Status::ResourceExhausted("no room"));
  for (const uint64_t seed : {1, 2, 3}) script_->pieces_by_seed[seed] = 50;
  const std::vector<std::shared_ptr<StreamState>> streams = {Start(1), Start(2), Start(3)};
  EXPECT_TRUE(ReadAll(*streams[1], 2).empty());
  EXPECT_EQ(streams[1]->status().message(), "no room");
  EXPECT_EQ(ReadAll(*streams[0], 1).size(), 5U);
  EXPECT_EQ(ReadAll(*streams[2], 3).size(), 5U);
}

// A stream that has just begun to speak has no unread frames, so the long prompt waits for three frames.
// Check: 32
TEST_F(SchedulerTest, ALongPromptWaitsForWhoRunsShort) {
  script_->frames_by_seed[2] = 1000000;
  script_->pieces_by_seed[1] = kEndless;
  const auto endless = Start(1);
  ASSERT_TRUE(Await([&] { return script_->pieces.size() > 2; }));
  const auto speaking = Start(2);
  ASSERT_TRUE(Await([&] { return script_->text_by_seed[2].size() >= 6; }));
  const auto script = script_.Lock();
  const size_t first = script->order.find('f');
  EXPECT_EQ(script->order.substr(first, 7), "fffpfpf") << script->order.substr(0, first + 10);
}

// Check: 32
TEST_F(SchedulerTest, CancelEndsAPromptAtItsNextPiece) {
  script_->pieces_by_seed[1] = kEndless;
  const auto stream = Start(1);
  ASSERT_TRUE(Await([&] { return script_->pieces.size() > 2; }));
  stream->Cancel();
  EXPECT_TRUE(Await([&] { return script_->open_slots == 0; }));
  EXPECT_EQ(ReadAll(*Start(2), 2).size(), 5U);
}

// Check: 32
TEST_F(SchedulerTest, StoppingDoesNotWaitForAPrompt) {
  for (const uint64_t seed : {1, 2, 3}) script_->pieces_by_seed[seed] = kEndless;
  const std::vector<std::shared_ptr<StreamState>> streams = {Start(1), Start(2), Start(3)};
  ASSERT_TRUE(Await([&] { return script_->pieces.size() > 5; }));
  scheduler_.reset();
  for (const auto& stream : streams) EXPECT_EQ(stream->end_reason(), EndReason::kCancelled);
}

// Check: 32
TEST_F(SchedulerTest, AFaultInMidPromptFailsItsStreamOnly) {
  script_->frames_by_seed[1] = 30;
  script_->pieces_by_seed[2] = 7;
  script_->prefill_error_by_seed.emplace(2, Status::ResourceExhausted("no room"));
  const auto good = Start(1);
  const auto bad = Start(2);
  EXPECT_TRUE(ReadAll(*bad, 2).empty());
  EXPECT_EQ(bad->end_reason(), EndReason::kError);
  EXPECT_EQ(bad->status().message(), "no room");
  EXPECT_EQ(ReadAll(*good, 1).size(), 30U);
}

// Check: 32
TEST_F(SchedulerTest, DeviceLostInMidPromptFailsEveryStream) {
  script_->frames_by_seed[1] = script_->frames_by_seed[3] = 1000000;
  script_->pieces_by_seed[2] = 7;
  script_->prefill_error_by_seed.emplace(2, Status::DeviceUnavailable("no GPU"));
  const auto running = Start(1, {.lead = 5});
  SettledText(1, 5);
  for (const auto& stream : {Start(2), running, Start(3)}) {
    Frame frame;
    while (stream->Read(&frame, true) == ReadState::kFrame) continue;
    EXPECT_EQ(stream->status().code(), StatusCode::kDeviceUnavailable);
  }
}

// --- more utterances than slots

// Check: 36
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
    const auto script = script_.Lock();
    EXPECT_EQ(script->most_open_slots, kDefaultVoices);
    EXPECT_TRUE(std::is_sorted(script->pieces.begin(), script->pieces.end())) << "first come, first served";
    EXPECT_EQ(script->pieces.size(), static_cast<size_t>(utterances));
    script->pieces.clear();
  }
}

// Check: 36
TEST_F(SchedulerTest, OccupancyTellsSlotsAndWhoWaits) {
  script_->max_slots = 3;
  for (const uint64_t seed : {1, 2, 3, 4, 5}) script_->frames_by_seed[seed] = 1000000;
  EXPECT_EQ(scheduler().occupancy().slots, 3);
  EXPECT_EQ(scheduler().occupancy().free_slots, 3);
  std::vector<std::shared_ptr<StreamState>> streams;
  for (const uint64_t seed : {1, 2}) streams.push_back(Start(seed));
  ASSERT_TRUE(Await([&] { return script_->open_slots == 2; }));
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
  ASSERT_TRUE(Await([&] { return script_->open_slots == 0; }));
}

// Check: 36
TEST_F(SchedulerTest, WhatWouldNotWaitIsRefusedAtOnce) {
  script_->max_slots = 2;
  script_->frames_by_seed[1] = script_->frames_by_seed[2] = 1000000;
  const auto one = Start(1);
  const auto two = Start(2);
  ASSERT_TRUE(Await([&] { return script_->open_slots == 2; }));
  const auto refused = Start(3, {.max_wait = std::chrono::nanoseconds(0)});
  EXPECT_TRUE(ReadAll(*refused, 3).empty());
  EXPECT_EQ(refused->end_reason(), EndReason::kBusy);
  EXPECT_EQ(refused->status().code(), StatusCode::kBusy);
  EXPECT_NE(refused->status().message().find("all 2 slots"), std::string::npos) << refused->status().message();
  EXPECT_NE(refused->status().message().find("max-wait"), std::string::npos);
  one->Cancel();
  ASSERT_TRUE(Await([&] { return script_->open_slots == 1; }));
  EXPECT_EQ(ReadAll(*Start(4, {.max_wait = std::chrono::nanoseconds(0)}), 4).size(), 5U);
  two->Cancel();
}

// Check: 36
TEST_F(SchedulerTest, WhatWaitedForLongEnoughIsRefused) {
  script_->max_slots = 1;
  script_->frames_by_seed[1] = 1000000;
  const auto speaking = Start(1);
  ASSERT_TRUE(Await([&] { return script_->open_slots == 1; }));
  const auto patient = Start(2);
  const auto start = std::chrono::steady_clock::now();
  const auto waiting = Start(3, {.max_wait = milliseconds(60)});
  EXPECT_TRUE(ReadAll(*waiting, 3).empty());
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(60));
  EXPECT_EQ(waiting->end_reason(), EndReason::kBusy);
  EXPECT_NE(waiting->status().message().find("60 ms"), std::string::npos) << waiting->status().message();
  speaking->Cancel();
  EXPECT_EQ(ReadAll(*patient, 2).size(), 5U);
}

}  // namespace
}  // namespace qtts
