// SPDX-License-Identifier: LGPL-2.1-or-later
// Utterances of several parts (Request::parts).
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sampling/philox.h"
#include "scheduler_fixture.h"

namespace qtts {
namespace {

constexpr uint64_t kSeed = 1;
const std::string kThreeSentences = "This is the first one. This is the second one. This is the third one.";

class PartsTest : public SchedulerTest {
 protected:
  static uint64_t Part(int number) { return SeedOfPart(kSeed, number); }

  static Request LongText(const std::string& text = kThreeSentences) {
    Request request;
    request.text = text;
    request.seed = kSeed;
    request.parts = PartBounds::Of(36);
    return request;
  }

  // Reads a stream to its end; returns the seed of the part of each frame. The scripted sample tells it.
  static std::vector<uint64_t> ReadParts(StreamState& stream, int64_t first = 0) {
    std::vector<uint64_t> seeds;
    Frame frame;
    while (stream.Read(&frame, true) == ReadState::kFrame) {
      EXPECT_EQ(frame.index, first + static_cast<int64_t>(seeds.size()));
      for (int part = 0; part < 4; ++part) {
        const auto of_part = static_cast<float>(Part(part)) + static_cast<float>(frame.codes.at(0)) / 1000.0F;
        if (frame.pcm.at(0) == of_part) {
          seeds.push_back(static_cast<uint64_t>(part));
          break;
        }
      }
    }
    return seeds;
  }
  static std::vector<uint64_t> Repeat(const std::vector<size_t>& frames) {
    std::vector<uint64_t> parts;
    for (size_t part = 0; part < frames.size(); ++part) parts.insert(parts.end(), frames[part], part);
    return parts;
  }
};

TEST_F(PartsTest, APartBeginsWhereTheLastOneEnds) {
  script_->frames_by_seed = {{Part(0), 7}, {Part(1), 9}, {Part(2), 4}};
  const auto stream = StartRequest(LongText());
  EXPECT_EQ(ReadParts(*stream), Repeat({7, 9, 4}));
  EXPECT_EQ(stream->end_reason(), EndReason::kComplete);
  EXPECT_EQ(script_->most_open_slots, 1);
}

TEST_F(PartsTest, FramesInFlightOfAnEndedPartAreDropped) {
  script_->beside_host = true;
  script_->max_outstanding = 3;
  script_->frames_by_seed = {{Part(0), 7}, {Part(1), 9}, {Part(2), 4}};
  const auto stream = StartRequest(LongText());
  EXPECT_EQ(ReadParts(*stream), Repeat({7, 9, 4}));
}

TEST_F(PartsTest, EachPartHasItsTextAlone) {
  const auto stream = StartRequest(LongText());
  ReadParts(*stream);
  // Each part equals the text that the model gets for its sentence alone.
  int64_t number = 0;
  for (const std::string sentence : {"This is the first one.", "This is the second one.", "This is the third one."}) {
    const uint64_t alone = 100 + static_cast<uint64_t>(number);
    ReadAll(*Start(alone, {.text = sentence}), alone);
    EXPECT_EQ(script_.Text(Part(static_cast<int>(number))), script_.Text(alone)) << sentence;
    ++number;
  }
}

TEST_F(PartsTest, AShortTextIsAsWithoutParts) {
  const auto stream = StartRequest(LongText("Hello there."));
  EXPECT_EQ(ReadParts(*stream), Repeat({5}));
  const auto whole = Start(2, {.text = "Hello there."});
  ReadAll(*whole, 2);
  EXPECT_EQ(script_.Text(kSeed), script_.Text(2));
}

TEST_F(PartsTest, OtherwiseATextIsOnePart) {
  Request request = LongText();
  request.parts = {};
  EXPECT_EQ(ReadParts(*StartRequest(request)), Repeat({5}));
}

TEST_F(PartsTest, TheNextPartComesBeforeStreamsThatWaitForASlot) {
  script_->max_slots = 1;
  script_->frames_by_seed[50] = 3;
  script_->frames_by_seed[Part(0)] = 30;
  const auto stream = StartRequest(LongText(), 3);
  ASSERT_TRUE(Await([&] { return script_->open_slots == 1; }));
  Request other;
  other.text = "Hello.";
  other.seed = 50;
  const auto waiting = StartRequest(other);
  ASSERT_TRUE(AwaitWaiting(1));
  EXPECT_EQ(ReadParts(*stream), Repeat({30, 5, 5}));
  EXPECT_EQ(ReadAll(*waiting, 50).size(), 3U);
  const auto script = script_.Lock();
  EXPECT_EQ(script->pieces, (std::vector<uint64_t>{Part(0), Part(1), Part(2), 50}));
}

TEST_F(PartsTest, TheNextPartIsNotRefusedForWantOfASlot) {
  script_->max_slots = 1;
  Request request = LongText("one two three four five six seven a ------ ---- ---");
  request.more_text = true;
  request.max_wait = std::chrono::nanoseconds(0);
  const auto stream = StartRequest(request);
  Frame frame;
  for (int i = 0; i < 5; ++i) ASSERT_EQ(stream->Read(&frame, true), ReadState::kFrame);
  // Between its parts another stream takes the slot.
  ASSERT_TRUE(AwaitOccupancy([](const Occupancy& now) { return now.free_slots == 1; }));
  script_->frames_by_seed[50] = 30;
  const auto other = Start(50, {.lead = 3});
  ASSERT_TRUE(Await([&] { return script_->open_slots == 1; }));
  ASSERT_TRUE(stream->Append(" eight nine ten").ok());
  ASSERT_TRUE(stream->FinishText().ok());
  ASSERT_TRUE(AwaitWaiting(1));
  EXPECT_EQ(ReadAll(*other, 50).size(), 30U);
  while (stream->Read(&frame, true) == ReadState::kFrame) continue;
  EXPECT_EQ(stream->end_reason(), EndReason::kComplete);
  EXPECT_EQ(frame.index, 9);
}

TEST_F(PartsTest, GrowingTextGivesTheSame) {
  script_->frames_by_seed = {{Part(0), 7}, {Part(1), 9}, {Part(2), 4}};
  for (const size_t size : {1, 3, 10}) {
    Request request = LongText("");
    request.more_text = true;
    const auto stream = StartRequest(request);
    for (size_t i = 0; i < kThreeSentences.size(); i += size) {
      ASSERT_TRUE(stream->Append(kThreeSentences.substr(i, size)).ok());
    }
    ASSERT_TRUE(stream->FinishText().ok());
    EXPECT_EQ(ReadParts(*stream), Repeat({7, 9, 4}));
    EXPECT_EQ(stream->end_reason(), EndReason::kComplete);
  }
}

// The part that is spoken has ended, and the text has not.
TEST_F(PartsTest, AStreamWaitsForTheTextOfItsNextPart) {
  Request request = LongText("This is the first one. This is the");
  request.more_text = true;
  const auto stream = StartRequest(request);
  Frame frame;
  for (int i = 0; i < 5; ++i) ASSERT_EQ(stream->Read(&frame, true), ReadState::kFrame);
  EXPECT_EQ(stream->end_reason(), EndReason::kNone);
  ASSERT_TRUE(stream->Append(" second one.").ok());
  ASSERT_TRUE(stream->FinishText().ok());
  EXPECT_EQ(ReadParts(*stream, 5), (std::vector<uint64_t>{1, 1, 1, 1, 1}));
  EXPECT_EQ(stream->end_reason(), EndReason::kComplete);
}

// Marks behind the part are not spoken, which shows when the text has ended.
TEST_F(PartsTest, TextThatEndsBetweenPartsEndsTheStream) {
  Request request = LongText("one two three four five six seven a ------ ---- ---");
  request.more_text = true;
  const auto stream = StartRequest(request);
  Frame frame;
  for (int i = 0; i < 5; ++i) ASSERT_EQ(stream->Read(&frame, true), ReadState::kFrame);
  ASSERT_TRUE(AwaitOccupancy([](const Occupancy& now) { return now.free_slots == now.slots; }));
  EXPECT_EQ(stream->end_reason(), EndReason::kNone);
  ASSERT_TRUE(stream->FinishText().ok());
  EXPECT_EQ(stream->Read(&frame, true), ReadState::kEnd);
  EXPECT_EQ(stream->end_reason(), EndReason::kComplete);
}

TEST_F(PartsTest, AMissedEndEndsItsPartAlone) {
  script_->frames_by_seed = {{Part(0), 600}, {Part(1), 9}, {Part(2), 4}};
  script_->silent_seeds = {Part(0)};
  Request request = LongText();
  request.runaway_guard = true;
  const auto stream = StartRequest(request, 100);
  int64_t frames = 0;
  Frame frame;
  while (stream->Read(&frame, true) == ReadState::kFrame) ++frames;
  EXPECT_EQ(frames, RunawayGuard::kSilentFrames + 9 + 4);
  EXPECT_EQ(stream->end_reason(), EndReason::kRunaway);
}

TEST_F(PartsTest, MaxNewTokensIsOfEachPartAndMaxFramesOfAll) {
  script_->frames_by_seed = {{Part(0), 50}, {Part(1), 50}, {Part(2), 4}};
  Request request = LongText();
  request.settings.max_new_tokens = 11;
  const auto each = StartRequest(request);
  EXPECT_EQ(ReadParts(*each), Repeat({10, 10, 4}));
  EXPECT_EQ(each->end_reason(), EndReason::kRunaway) << "the ends of parts were missed";
  request.max_frames = 15;
  const auto all = StartRequest(request);
  EXPECT_EQ(ReadParts(*all), Repeat({10, 5}));
  EXPECT_EQ(all->end_reason(), EndReason::kMaxDuration);
}

TEST_F(PartsTest, AnErrorEndsAll) {
  script_->open_error_by_seed[Part(1)] = Status::Internal("no");
  const auto stream = StartRequest(LongText());
  EXPECT_EQ(ReadParts(*stream), Repeat({5}));
  EXPECT_EQ(stream->end_reason(), EndReason::kError);
}

TEST_F(PartsTest, ALongTextIsNoErrorInParts) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "Word after word. ";
  Request request = LongText(text);
  request.parts = PartBounds::Of(300);
  const auto stream = StartRequest(request);
  Frame frame;
  int64_t frames = 0;
  while (stream->Read(&frame, true) == ReadState::kFrame) ++frames;
  EXPECT_EQ(stream->end_reason(), EndReason::kComplete);
  EXPECT_GT(frames, 5 * 1000);
}

}  // namespace
}  // namespace qtts
