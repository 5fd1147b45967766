// SPDX-License-Identifier: LGPL-2.1-or-later
// Pages of the KV cache: waiting for them, parking, and running out.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "qtts/log.h"
#include "scheduler/scheduler.h"
#include "scheduler_fixture.h"

namespace qtts {
namespace {

using std::chrono::milliseconds;

// --- pages

TEST_F(SchedulerTest, OccupancyTellsPages) {
  script_->page_positions = 32;
  script_->pages = 8;
  script_->frames_by_seed[1] = 1000000;
  EXPECT_EQ(scheduler().occupancy().pages, 8);
  EXPECT_EQ(scheduler().occupancy().free_pages, 8);
  const auto stream = Start(1, {.lead = 2});
  ASSERT_TRUE(AwaitOccupancy([](const Occupancy& now) { return now.free_pages == 7; }));
  stream->Cancel();
  ASSERT_TRUE(AwaitOccupancy([](const Occupancy& now) { return now.free_pages == 8; }));
  EXPECT_EQ(scheduler().occupancy().pages, 8);
}

TEST_F(SchedulerTest, AnUtteranceWaitsWhileThePagesDoNotHoldIt) {
  script_->page_positions = 32;
  script_->pages = 8;  // a prompt and its first frames need one or two pages; each speaking stream keeps one in reserve
  std::vector<std::shared_ptr<StreamState>> streams;
  for (uint64_t seed = 1; seed <= 6; ++seed) script_->frames_by_seed[seed] = 1000000;
  for (uint64_t seed = 1; seed <= 6; ++seed) streams.push_back(Start(seed, {.lead = 2}));
  // A prompt takes one page. After four of them four pages are free: the reserve of each stream, none for a fifth.
  constexpr int kAdmitted = 4;
  ASSERT_TRUE(Await([&] { return script_->open_slots == kAdmitted; }));
  ASSERT_TRUE(AwaitWaiting(6 - kAdmitted));
  EXPECT_GT(scheduler().occupancy().free_slots, 0);
  const auto refused = Start(7, {.max_wait = milliseconds(20)});
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
  script_->page_positions = 32;
  script_->pages = 64;
  constexpr int kStreams = 20;
  Streams streams;
  for (uint64_t seed = 1; seed <= kStreams; ++seed) script_->frames_by_seed[seed] = 1000000;
  for (uint64_t seed = 1; seed <= kStreams; ++seed) {
    Request request;
    request.text = "Several words of a text that is long enough for some two hundred frames.";
    request.seed = seed;
    request.settings.max_new_tokens = 200;
    streams.push_back(StartRequest(request, 2));
  }
  // Each will have 200 positions and those of its prompt, 7 pages: 8 of them take 56 of the 61 that are not kept back.
  ASSERT_TRUE(Await([&] { return script_->open_slots == 8; }));
  ASSERT_TRUE(AwaitWaiting(kStreams - 8));
  EXPECT_GT(scheduler().occupancy().free_pages, 40);
  // Where one ends, another begins.
  streams.front()->Cancel();
  ASSERT_TRUE(AwaitWaiting(kStreams - 9));
  for (const auto& stream : streams) stream->Cancel();
}

// One that ends early leaves its pages to those that need them later.
TEST_F(SchedulerTest, ShortUtterancesBeginBesideLongOnes) {
  script_->page_positions = 32;
  script_->pages = 64;
  for (uint64_t seed = 1; seed <= 13; ++seed) script_->frames_by_seed[seed] = 1000000;
  Streams streams;
  const auto start = [&](uint64_t seed, int64_t max_new_tokens) {
    Request request;
    request.text = "Several words of a text that is long enough for some two hundred frames.";
    request.seed = seed;
    request.settings.max_new_tokens = max_new_tokens;
    streams.push_back(StartRequest(request, 2));
  };
  for (uint64_t seed = 1; seed <= 8; ++seed) start(seed, 200);
  ASSERT_TRUE(Await([&] { return script_->open_slots == 8; }));
  for (uint64_t seed = 9; seed <= 12; ++seed) start(seed, 20);
  ASSERT_TRUE(Await([&] { return script_->open_slots == 12; }));
  start(13, 200);
  ASSERT_TRUE(AwaitWaiting(1));
  for (const auto& stream : streams) stream->Cancel();
}

TEST_F(SchedulerTest, APromptThatNeedsMoreThanAllPagesFailsAtOnce) {
  script_->page_positions = 2;
  script_->pages = 100;
  script_->frames_by_seed[1] = 1000000;
  const auto speaking = Start(1, {.lead = 2});
  ASSERT_TRUE(Await([&] { return script_->open_slots == 1; }));
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
    script_->page_positions = 4;
    script_->pages = 1000;
    script_->host_pages = host_pages;
    for (const uint64_t seed : {1, 2, 3}) script_->frames_by_seed[seed] = kFrames;
    first_ = Start(1, {.lead = kFirstLead});
    second_ = Start(2, {.lead = kSecondLead});
    SettledText(1, kFirstLead);
    SettledText(2, kSecondLead);
    SetPages(0);
  }
  // Sets the number of pages to those in use and `more`.
  void SetPages(int64_t more) {
    const auto script = script_.Lock();
    script->pages = script->taken_pages + more;
  }
  void TearDown() override {
    SchedulerTest::TearDown();
    EXPECT_EQ(script_->taken_pages, 0);
    EXPECT_EQ(script_->parked_pages, 0);
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
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(300);
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
    const auto script = script_.Lock();
    EXPECT_EQ(script->parkings_by_seed[1], 1);
    EXPECT_EQ(script->parkings_by_seed[2], 0);
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
  const auto start = std::chrono::steady_clock::now();
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
  EXPECT_NE(parking_lines.find("pages are in use"), std::string::npos) << parking_lines;
  EXPECT_NE(parking_lines.find("since the last such line: 1"), std::string::npos) << parking_lines;
  // Ten seconds later there may be more.
  if (std::chrono::steady_clock::now() - start < std::chrono::seconds(10)) {
    EXPECT_EQ(std::count(parking_lines.begin(), parking_lines.end(), '\n'), 2) << parking_lines;
  }
}

TEST_F(FullPagesTest, AParkedStreamComesBackInAnothersPlace) {
  StartBoth();
  Read(*second_, 8);
  EXPECT_TRUE(AwaitParked(1));
  // The second stream is no longer read, so the first one needs pages.
  ExpectRest(*first_, 1, 0);
  ExpectRest(*second_, 2, 8);
  const auto script = script_.Lock();
  EXPECT_GE(script->parkings_by_seed[2], 1);
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
  script_->page_positions = 1;
  script_->pages = 100000;
  std::string text = "Hello";
  for (size_t i = 0; i < kLeastFrames + 10; ++i) text += " word";
  Streams streams;
  for (uint64_t seed = 0; seed < kStreams; ++seed) script_->frames_by_seed[seed] = 1000;
  for (uint64_t seed = 0; seed < kStreams; ++seed) {
    streams.push_back(Start(seed, {.text = text, .more_text = true, .lead = 1000}));
  }
  for (uint64_t seed = 0; seed < kStreams; ++seed) SettledText(seed, kLeastFrames);
  script_->pages = script_->taken_pages / 2 + 30;
  // The reader of one takes some frames, so it is not the one that is furthest ahead. Its next frame needs a page, for
  // which three others are parked.
  Frame frame;
  for (int i = 0; i < 10; ++i) ASSERT_EQ(streams[0]->Read(&frame, true), ReadState::kFrame);
  ASSERT_TRUE(streams[0]->Append(" and this, and that.").ok());
  ASSERT_TRUE(AwaitOccupancy([](const Occupancy& now) { return now.parked == 3; }));
  Streams parked;
  for (uint64_t seed = 0; seed < kStreams; ++seed) {
    const auto script = script_.Lock();
    if (script->parkings_by_seed[seed] > 0) parked.push_back(streams[seed]);
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
  script_->max_slots = 2 * kDefaultVoices;
  script_->max_outstanding = 2;
  script_->beside_host = true;
  script_->time_of_step = milliseconds(50);
  script_->page_positions = 1000;
  script_->pages = 1000;
  for (const uint64_t seed : {1, 2}) script_->frames_by_seed[seed] = 1000;
  const Streams streams = {Start(1, {.lead = kLead}), Start(2, {.lead = kLead})};
  ReadUntilStepTimeIsKnown(streams);
  std::this_thread::sleep_for(milliseconds(500));
  const size_t before = script_.Text(1).size();
  EXPECT_LT(before, 40 + kLead / 2);
  script_->pages = script_->taken_pages;
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
  script_->page_positions = 4;
  script_->pages = 10;
  script_->frames_by_seed[1] = 100;
  const auto stream = Start(1);
  EXPECT_LT(ReadAll(*stream, 1).size(), 40U);
  EXPECT_EQ(stream->end_reason(), EndReason::kError);
  EXPECT_NE(stream->status().message().find("10 pages"), std::string::npos) << stream->status().message();
  script_->frames_by_seed[2] = 3;
  EXPECT_EQ(ReadAll(*Start(2), 2).size(), 3U);
}

}  // namespace
}  // namespace qtts
