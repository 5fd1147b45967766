// SPDX-License-Identifier: LGPL-2.1-or-later
// Words and coverage of streams, from the scores of a scripted backend.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "alignment/coverage.h"
#include "scheduler_fixture.h"

namespace qtts {
namespace {

class WordsTest : public SchedulerTest {
 protected:
  struct Spoken {
    int64_t frames = 0;
    std::vector<SpokenWord> words;
    std::vector<std::string> texts;
    SpeechReport report;
    EndReason end = EndReason::kNone;
  };

  static Spoken Read(StreamState& stream, const std::string& text) {
    Spoken spoken;
    Frame frame;
    while (stream.Read(&frame, true) == ReadState::kFrame) {
      ++spoken.frames;
      spoken.words.insert(spoken.words.end(), frame.words.begin(), frame.words.end());
    }
    for (const SpokenWord& word : stream.last_words()) spoken.words.push_back(word);
    for (const SpokenWord& word : spoken.words) {
      spoken.texts.push_back(text.substr(word.text.begin, word.text.end - word.text.begin));
    }
    spoken.report = stream.report();
    spoken.end = stream.end_reason();
    return spoken;
  }

  Request RequestOf(const std::string& text, uint64_t seed, bool guard = false) {
    script_->frames_per_token = 3;
    Request request;
    request.text = text;
    request.seed = seed;
    request.runaway_guard = guard;
    return request;
  }

  const std::string text_ = "Hello there, it is a fine day.";
  const std::vector<std::string> words_ = {"Hello", "there", "it", "is", "a", "fine", "day"};
};

TEST_F(WordsTest, EachWordOnceInOrder) {
  script_->frames_by_seed = {{1, 200}};
  const Spoken spoken = Read(*StartRequest(RequestOf(text_, 1)), text_);
  EXPECT_EQ(spoken.texts, words_);
  for (size_t i = 1; i < spoken.words.size(); ++i) EXPECT_GT(spoken.words[i].start, spoken.words[i - 1].start);
  EXPECT_EQ(spoken.end, EndReason::kComplete);
  EXPECT_TRUE(spoken.report.measured);
  EXPECT_TRUE(spoken.report.end_missed);
  EXPECT_EQ(spoken.report.coverage(), 1.0);
}

TEST_F(WordsTest, WithoutScoresNothingIsMeasured) {
  script_->frames_by_seed = {{1, 20}};
  Request request = RequestOf(text_, 1);
  script_->frames_per_token = 0;
  const Spoken spoken = Read(*StartRequest(request), text_);
  EXPECT_EQ(spoken.frames, 20);
  EXPECT_TRUE(spoken.words.empty());
  EXPECT_FALSE(spoken.report.measured);
}

TEST_F(WordsTest, TheGuardEndsSpeechASecondBehindItsText) {
  script_->frames_by_seed = {{1, 500}};
  const Spoken spoken = Read(*StartRequest(RequestOf(text_, 1, true), 1000), text_);
  EXPECT_EQ(spoken.end, EndReason::kRunaway);
  EXPECT_TRUE(spoken.report.end_missed);
  // Three frames for each of the tokens before the last one, and then a second.
  const auto tokens = static_cast<int64_t>(spoken.report.tokens);
  EXPECT_GE(spoken.frames, 3 * tokens);
  EXPECT_LE(spoken.frames, 3 * tokens + Coverage::kEndFrames + TextPath::kLag + 2);
}

TEST_F(WordsTest, TheGuardEndsSpeechThatStandsStill) {
  script_->frames_by_seed = {{1, 500}};
  script_->stuck_by_seed = {{1, 3}};
  const Spoken spoken = Read(*StartRequest(RequestOf(text_, 1, true), 1000), text_);
  EXPECT_EQ(spoken.end, EndReason::kRunaway);
  EXPECT_FALSE(spoken.report.end_missed);
  EXPECT_TRUE(spoken.report.stopped_early);
  EXPECT_LT(spoken.report.coverage(), 0.6);
  EXPECT_LT(spoken.frames, 80);
}

TEST_F(WordsTest, WithoutScoresTheBoundIsTheRequests) {
  script_->frames_by_seed = {{1, 2000}};
  Request request = RequestOf(text_, 1, true);
  script_->frames_per_token = 0;
  request.runaway_frames_per_token = 3;
  const Spoken spoken = Read(*StartRequest(request, 2000), text_);
  EXPECT_EQ(spoken.end, EndReason::kRunaway);
  const auto ids = tokenizer_->EncodePlain("assistant\n" + text_);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(spoken.frames, RunawayGuard::MostFrames(ids->size(), 3) + 1);
}

// Text that grows and a device that runs ahead change no word.
TEST_F(WordsTest, GrowingTextGivesTheSame) {
  script_->frames_by_seed = {{1, 60}};
  script_->max_outstanding = 2;
  const Spoken expected = Read(*StartRequest(RequestOf(text_, 1)), text_);
  for (const size_t size : {size_t{1}, size_t{3}, size_t{10}}) {
    Request request = RequestOf("", 1);
    request.more_text = true;
    const auto stream = StartRequest(request, 1000);
    for (size_t at = 0; at < text_.size(); at += size) ASSERT_TRUE(stream->Append(text_.substr(at, size)).ok());
    ASSERT_TRUE(stream->FinishText().ok());
    const Spoken spoken = Read(*stream, text_);
    EXPECT_EQ(spoken.words, expected.words);
    EXPECT_EQ(spoken.report, expected.report);
  }
}

// Words of parts are those of the whole text, though the space between parts belongs to none.
TEST_F(WordsTest, PartsOfAText) {
  const std::string text = "It is a fine day today.   We go out.\n\nAnd so on it goes, for ever and a day.";
  Request request = RequestOf(text, 1);
  request.parts = {20, 30, 40};
  const Spoken spoken = Read(*StartRequest(request, 1000), text);
  EXPECT_FALSE(spoken.texts.empty());
  EXPECT_EQ(spoken.texts.front(), "It");
  EXPECT_TRUE(spoken.report.stopped_early) << "five frames speak two tokens of each part";
  script_->frames_by_seed = {{1, 60}};  // of the first part
  const Spoken first_whole = Read(*StartRequest(request, 1000), text);
  ASSERT_GE(first_whole.texts.size(), 6U);
  EXPECT_EQ(first_whole.texts[4], "day");
  EXPECT_EQ(first_whole.texts[5], "today");
  for (size_t i = 1; i < first_whole.words.size(); ++i) {
    EXPECT_GE(first_whole.words[i].text.begin, first_whole.words[i - 1].text.end);
    EXPECT_GT(first_whole.words[i].start, first_whole.words[i - 1].start);
  }
}

TEST_F(WordsTest, ACancelledStreamSaysWhatWasSpoken) {
  script_->frames_by_seed = {{1, 500}};
  const auto stream = StartRequest(RequestOf(text_, 1), 10);
  Frame frame;
  for (int i = 0; i < 12; ++i) ASSERT_EQ(stream->Read(&frame, true), ReadState::kFrame);
  stream->Cancel();
  const SpeechReport report = stream->report();
  EXPECT_TRUE(report.measured);
  EXPECT_FALSE(report.stopped_early) << "the reader ended it";
  EXPECT_GT(report.spoken_tokens, 0U);
  EXPECT_LT(report.coverage(), 1);
  EXPECT_TRUE(stream->last_words().empty());
}

}  // namespace
}  // namespace qtts
