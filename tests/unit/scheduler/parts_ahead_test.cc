// SPDX-License-Identifier: LGPL-2.1-or-later
// Parts of utterances that are made ahead of their turn (Request::parallel_parts).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "sampling/philox.h"
#include "scheduler_fixture.h"

namespace qtts {
namespace {

const std::string kFourSentences =
    "This is the first one. This is the second one. This is the third one. This is the last one.";

class PartsAheadTest : public SchedulerTest {
 protected:
  // All that a reader gets.
  struct Spoken {
    std::vector<int32_t> codes;
    std::vector<float> samples;
    std::vector<SpokenWord> words;
    SpeechReport report;
    EndReason end = EndReason::kNone;
    std::string error;

    bool operator==(const Spoken&) const = default;
  };

  static Spoken ReadSpoken(StreamState& stream) {
    Spoken spoken;
    Frame frame;
    while (stream.Read(&frame, true) == ReadState::kFrame) {
      EXPECT_EQ(frame.index, static_cast<int64_t>(spoken.codes.size()));
      spoken.codes.insert(spoken.codes.end(), frame.codes.begin(), frame.codes.end());
      spoken.samples.insert(spoken.samples.end(), frame.pcm.begin(), frame.pcm.end());
      spoken.words.insert(spoken.words.end(), frame.words.begin(), frame.words.end());
    }
    for (const SpokenWord& word : stream.last_words()) spoken.words.push_back(word);
    spoken.report = stream.report();
    spoken.end = stream.end_reason();
    spoken.error = stream.status().message();
    return spoken;
  }

  static Request LongText(int parallel_parts, uint64_t seed = 1, const std::string& text = kFourSentences) {
    Request request;
    request.text = text;
    request.seed = seed;
    request.parts = PartBounds::Of(36);
    request.real_time = false;
    request.parallel_parts = parallel_parts;
    return request;
  }
  static uint64_t Part(int number, uint64_t seed = 1) { return SeedOfPart(seed, number); }

  // Returns the speech of a request part after part, and expects the same when parts are made at once.
  Spoken ExpectSame(Request request) {
    request.parallel_parts = 1;
    const Spoken expected = ReadSpoken(*StartRequest(request));
    for (const int parts : {2, 3, 4, 8}) {
      request.parallel_parts = parts;
      EXPECT_EQ(ReadSpoken(*StartRequest(request)), expected) << parts << " parts at once";
    }
    return expected;
  }

  // Starts a text whose first part stands still after three frames, since nobody reads, and whose second part has all
  // the frames that may be held. Returns when both slots are taken.
  std::shared_ptr<StreamState> StartLongParts(int parallel_parts) {
    script_->frames_by_seed[Part(0)] = 30;
    for (int part = 1; part < 4; ++part) script_->frames_by_seed[Part(part)] = kLongPart;
    auto stream = StartRequest(LongText(parallel_parts), 3);
    EXPECT_TRUE(Await([&] { return script_->open_slots == std::min(script_->max_slots, parallel_parts); }));
    return stream;
  }

  // More than LookAhead::max_frames.
  static constexpr int kLongPart = 500;
};

TEST_F(PartsAheadTest, PartsAreMadeAtOnceAndGiveTheSame) {
  script_->frames_by_seed = {{Part(0), 7}, {Part(1), 40}, {Part(2), 3}, {Part(3), 12}};
  const Spoken spoken = ExpectSame(LongText(1));
  EXPECT_EQ(spoken.codes.size(), 7U + 40 + 3 + 12);
  EXPECT_EQ(spoken.end, EndReason::kComplete);
  EXPECT_EQ(script_->most_open_slots, 4);
}

TEST_F(PartsAheadTest, ADeviceThatRunsAheadGivesTheSame) {
  script_->beside_host = true;
  script_->max_outstanding = 3;
  script_->max_slots = 200;
  script_->prompt_rows_together = 256;
  script_->frames_by_seed = {{Part(0), 7}, {Part(1), 40}, {Part(2), 3}, {Part(3), 12}};
  ExpectSame(LongText(1));
  EXPECT_EQ(script_->most_open_slots, 4);
}

TEST_F(PartsAheadTest, WordsAndReportsAreTheSame) {
  script_->frames_per_token = 3;
  script_->frames_by_seed = {{Part(0), 24}, {Part(1), 30}, {Part(2), 6}, {Part(3), 40}};
  const Spoken spoken = ExpectSame(LongText(1));
  EXPECT_TRUE(spoken.report.measured);
  EXPECT_GT(spoken.words.size(), 12U);
  EXPECT_TRUE(spoken.report.stopped_early) << "two tokens of the third part are spoken";
}

TEST_F(PartsAheadTest, AMissedEndIsFoundAtTheSameFrame) {
  script_->frames_by_seed = {{Part(0), 7}, {Part(1), 600}, {Part(2), 9}, {Part(3), 4}};
  script_->silent_seeds = {Part(1)};
  Request request = LongText(1);
  request.runaway_guard = true;
  Spoken spoken = ExpectSame(request);
  EXPECT_EQ(spoken.codes.size(), 7U + RunawayGuard::kSilentFrames + 9 + 4);
  EXPECT_EQ(spoken.end, EndReason::kRunaway);
  // The head says so earlier than the silence does.
  script_->frames_per_token = 3;
  script_->stuck_by_seed[Part(1)] = 2;
  spoken = ExpectSame(request);
  EXPECT_LT(spoken.codes.size(), 7U + RunawayGuard::kSilentFrames + 9 + 4);
  EXPECT_EQ(spoken.end, EndReason::kRunaway);
}

TEST_F(PartsAheadTest, LimitsOfFramesAreTheSame) {
  script_->frames_by_seed = {{Part(0), 50}, {Part(1), 50}, {Part(2), 50}, {Part(3), 4}};
  Request request = LongText(1);
  request.settings.max_new_tokens = 11;
  EXPECT_EQ(ExpectSame(request).codes.size(), 10U + 10 + 10 + 4);
  for (const int64_t max_frames : {5, 10, 11, 15, 25, 33, 40}) {
    request.max_frames = max_frames;
    EXPECT_EQ(ExpectSame(request).codes.size(), static_cast<size_t>(std::min<int64_t>(max_frames, 34)));
  }
}

TEST_F(PartsAheadTest, ErrorsComeInTheirTurn) {
  script_->open_error_by_seed[Part(1)] = Status::Internal("no slot for it");
  Spoken spoken = ExpectSame(LongText(1));
  EXPECT_EQ(spoken.codes.size(), 5U);
  EXPECT_EQ(spoken.error, "no slot for it");
  script_->open_error_by_seed.clear();
  script_->prefill_error_by_seed[Part(2)] = Status::Internal("no prompt");
  spoken = ExpectSame(LongText(1));
  EXPECT_EQ(spoken.codes.size(), 10U);
  EXPECT_EQ(spoken.error, "no prompt");
  script_->prefill_error_by_seed.clear();
  script_->end_by_seed[Part(3)] = EndReason::kError;
  spoken = ExpectSame(LongText(1));
  EXPECT_EQ(spoken.codes.size(), 20U);
  EXPECT_EQ(spoken.error, "scripted failure");
}

TEST_F(PartsAheadTest, AGrowingTextIsMadeAheadWhereItIsComplete) {
  for (const size_t size : {size_t{1}, size_t{5}, size_t{30}}) {
    script_->frames_by_seed[Part(0, size)] = 30;
    script_->frames_by_seed[Part(1, size)] = 9;
    Request request = LongText(4, size, "");
    request.more_text = true;
    const auto stream = StartRequest(request, 3);
    const size_t second_ends = kFourSentences.find("third");
    size_t at = 0;
    for (; at < second_ends; at += size) ASSERT_TRUE(stream->Append(kFourSentences.substr(at, size)).ok());
    ASSERT_TRUE(stream->Append(kFourSentences.substr(at, 5)).ok());
    at += 5;
    // The first part stands still, and the second one is made.
    EXPECT_TRUE(Await([&] { return script_->text_by_seed[Part(1, size)].size() >= 9; }));
    for (; at < kFourSentences.size(); at += size) ASSERT_TRUE(stream->Append(kFourSentences.substr(at, size)).ok());
    ASSERT_TRUE(stream->FinishText().ok());
    EXPECT_EQ(ReadSpoken(*stream), ReadSpoken(*StartRequest(LongText(1, size))));
  }
}

TEST_F(PartsAheadTest, RealTimeUtterancesAreMadePartAfterPart) {
  Request request = LongText(4);
  request.real_time = true;
  ReadSpoken(*StartRequest(request));
  EXPECT_EQ(script_->most_open_slots, 1);
}

TEST_F(PartsAheadTest, SpeechThatIsHeldIsBounded) {
  script_->max_slots = 2;
  const auto stream = StartLongParts(4);
  const auto most = static_cast<size_t>(LookAhead().max_frames);
  ASSERT_TRUE(Await([&] { return script_->text_by_seed[Part(1)].size() >= most; }));
  EXPECT_EQ(SettledText(Part(1), most).size(), most);
  EXPECT_EQ(ReadSpoken(*stream).codes.size(), 30U + 3 * kLongPart);
}

TEST_F(PartsAheadTest, APartGivesItsSlotToWhoeverWaits) {
  script_->max_slots = 2;
  const auto stream = StartLongParts(4);
  ASSERT_TRUE(AwaitOccupancy([](const Occupancy& now) { return now.free_slots == 1; })) << "it is anybody's";
  // It would be refused if it had to wait.
  const auto other = Start(50, {.max_wait = std::chrono::nanoseconds(0)});
  EXPECT_EQ(ReadAll(*other, 50).size(), 5U);
  EXPECT_EQ(other->end_reason(), EndReason::kComplete);
  EXPECT_EQ(script_->most_open_slots, 2);
  // The part is made again, and is the same.
  const Spoken spoken = ReadSpoken(*stream);
  EXPECT_GE(std::count(script_->pieces.begin(), script_->pieces.end(), Part(1)), 2);
  EXPECT_EQ(spoken, ReadSpoken(*StartRequest(LongText(1))));
}

// The part whose turn comes last gives way first.
TEST_F(PartsAheadTest, TheNextPartIsKeptLongest) {
  script_->max_slots = 4;
  const auto stream = StartLongParts(4);
  const auto first = Start(50, {.lead = 3});
  const auto second = Start(51, {.lead = 3});
  Frame frame;
  ASSERT_EQ(first->Read(&frame, true), ReadState::kFrame);
  ASSERT_EQ(second->Read(&frame, true), ReadState::kFrame);
  {
    const auto script = script_.Lock();
    EXPECT_EQ(std::count(script->pieces.begin(), script->pieces.end(), Part(1)), 1);
    EXPECT_EQ(script->open_slots, 4);
  }
  first->Cancel();
  second->Cancel();
  ReadSpoken(*stream);
  EXPECT_EQ(std::count(script_->pieces.begin(), script_->pieces.end(), Part(1)), 1);
}

TEST_F(PartsAheadTest, TheOwnNextPartHasASlotBeforeLaterOnes) {
  script_->max_slots = 1;
  script_->frames_by_seed = {{Part(0), 7}, {Part(1), 40}, {Part(2), 3}, {Part(3), 12}};
  EXPECT_EQ(ExpectSame(LongText(1)).codes.size(), 62U);
}

// Prompts and steps of parts that are made ahead wait for first frames of others.
TEST_F(PartsAheadTest, AFirstFrameIsMadeWithoutThem) {
  script_->pieces_by_seed[50] = 4;
  const auto stream = StartLongParts(4);
  const auto other = Start(50);
  EXPECT_EQ(ReadAll(*other, 50).size(), 5U);
  const auto script = script_.Lock();
  const auto has = [](const std::vector<uint64_t>& step, uint64_t seed) {
    return std::find(step.begin(), step.end(), seed) != step.end();
  };
  const auto first = std::find_if(script->submissions.begin(), script->submissions.end(),
                                  [&](const auto& step) { return has(step, 50); });
  ASSERT_NE(first, script->submissions.end());
  for (int part = 1; part < 4; ++part) EXPECT_FALSE(has(*first, Part(part)));
  const auto prompt = std::find(script->pieces.begin(), script->pieces.end(), 50);
  EXPECT_EQ(std::count(prompt, prompt + 4, 50), 4) << "its prompt was run in one go";
}

TEST_F(PartsAheadTest, CancelGivesAllSlotsBack) {
  const auto stream = StartLongParts(4);
  stream->Cancel();
  EXPECT_TRUE(Await([&] { return script_->open_slots == 0; }));
  Frame frame;
  EXPECT_EQ(stream->Read(&frame, true), ReadState::kEnd);
  EXPECT_EQ(stream->end_reason(), EndReason::kCancelled);
}

TEST_F(PartsAheadTest, ALostDeviceEndsTheUtterance) {
  const auto stream = StartLongParts(4);
  script_->device_lost = true;
  EXPECT_EQ(ReadSpoken(*stream).end, EndReason::kError);
}

// The text with more parts ahead gives a slot back.
TEST_F(PartsAheadTest, SlotsAreSharedEvenly) {
  script_->max_slots = 6;
  for (int part = 0; part < 4; ++part) {
    script_->frames_by_seed[Part(part, 1)] = kLongPart;
    script_->frames_by_seed[Part(part, 2)] = kLongPart;
  }
  const auto first = StartRequest(LongText(8, 1), 3);
  ASSERT_TRUE(Await([&] { return script_->open_slots == 4; }));
  const auto second = StartRequest(LongText(8, 2), 3);
  ASSERT_TRUE(Await([&] { return script_->open_slots == 6; }));
  const auto third = Start(50, {.lead = 3});
  Frame frame;
  ASSERT_EQ(third->Read(&frame, true), ReadState::kFrame);
  // The first text, with three parts ahead, has given one back.
  const auto script = script_.Lock();
  EXPECT_EQ(script->open_slots, 6);
  EXPECT_EQ(std::count(script->pieces.begin(), script->pieces.end(), Part(1, 2)), 1);
}

// Many utterances of several parts, with short ones between them, on devices of few slots or pages.
TEST_F(PartsAheadTest, ManyAtOnceGiveWhatEachGivesAlone) {
  constexpr uint64_t kUtterances = 24;
  std::mt19937 random(5);
  script_->frames_per_token = 2;
  for (uint64_t seed = 1; seed <= kUtterances; ++seed) {
    for (int part = 0; part < 4; ++part) {
      script_->frames_by_seed[Part(part, seed)] = static_cast<int>(random() % 40);
      script_->pieces_by_seed[Part(part, seed)] = 1 + static_cast<int>(random() % 3);
    }
  }
  const auto request_of = [](uint64_t seed, int parallel_parts) {
    Request request = LongText(parallel_parts, seed, seed % 3 == 0 ? "Hello there." : kFourSentences);
    request.runaway_guard = seed % 2 == 0;
    return request;
  };
  std::vector<Spoken> expected;
  for (uint64_t seed = 1; seed <= kUtterances; ++seed) {
    expected.push_back(ReadSpoken(*StartRequest(request_of(seed, 1))));
  }
  for (const int pages : {0, 60}) {
    scheduler_.reset();
    script_->max_slots = 7;
    script_->page_positions = pages > 0 ? 4 : 0;
    script_->pages = pages;
    script_->beside_host = true;
    script_->max_outstanding = 2;
    std::vector<std::thread> readers;
    for (uint64_t seed = 1; seed <= kUtterances; ++seed) {
      readers.emplace_back([&, stream = StartRequest(request_of(seed, 4), 1 + seed % 6), seed] {
        EXPECT_EQ(ReadSpoken(*stream), expected[seed - 1]) << "utterance " << seed << ", " << pages << " pages";
      });
    }
    for (std::thread& reader : readers) reader.join();
    EXPECT_LE(script_->most_open_slots, 7);
  }
  scheduler_.reset();
  EXPECT_EQ(script_->taken_pages, 0) << "pages leaked";
  EXPECT_EQ(script_->parked_pages, 0) << "pages leaked";
}

}  // namespace
}  // namespace qtts
