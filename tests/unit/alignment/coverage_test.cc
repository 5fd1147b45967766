// SPDX-License-Identifier: LGPL-2.1-or-later
#include "alignment/coverage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

namespace qtts {
namespace {

// A text of `tokens` tokens, each a word of its own, without white space, and a last token of punctuation.
class Speech {
 public:
  explicit Speech(int32_t tokens, bool ends_with_mark = true) : tokens_(tokens) {
    for (int32_t i = 0; i < tokens - (ends_with_mark ? 1 : 0); ++i) {
      coverage_.AddWord({{static_cast<size_t>(i), static_cast<size_t>(i) + 1}, i, i});
    }
    coverage_.SetTextTokens(tokens);
  }

  // One frame whose attention is on these tokens, with these probabilities.
  void Say(const std::map<int32_t, float>& attention, float mass = 1) {
    TextScores scores;
    const int32_t begin = path_.WindowBegin(path_.frames());
    for (int32_t j = begin; j < std::min(begin + kTextScores, tokens_ + 1); ++j) {
      const auto found = attention.find(j);
      scores.scores.push_back(std::log(found == attention.end() ? 1e-6F : found->second));
    }
    scores.log_sum = 0;
    scores.mass = mass;
    path_.Add(begin, scores);
    Pass();
  }
  void Say(int32_t token, int frames = 3) {
    for (int i = 0; i < frames; ++i) Say({{token, 1.0F}});
  }
  void SayTo(int32_t end, int32_t begin = 0) {
    for (int32_t token = begin; token < end; ++token) Say(token);
  }
  const Coverage& Finish() {
    path_.Finish();
    Pass();
    coverage_.Finish(path_);
    return coverage_;
  }
  const Coverage& coverage() const { return coverage_; }

 private:
  void Pass() {
    for (PlacedFrame& frame : path_.Take()) {
      coverage_.Add(std::move(frame), path_, path_.WindowBegin(path_.frames()));
    }
  }
  const int32_t tokens_;
  TextPath path_;
  Coverage coverage_;
};

using Ranges = std::vector<TextRange>;

TEST(CoverageTest, CleanSpeech) {
  Speech speech(60);
  speech.SayTo(60);
  speech.Say(60, 4);
  const Coverage& c = speech.Finish();
  EXPECT_TRUE(c.trusted());
  EXPECT_EQ(c.skipped(), Ranges());
  EXPECT_EQ(c.repeated(), Ranges());
  EXPECT_FALSE(c.end_missed());
  EXPECT_FALSE(c.stopped_early());
  EXPECT_FALSE(c.runaway());
  EXPECT_EQ(c.spoken_tokens(), 60);
}

TEST(CoverageTest, AWordThatIsPassedOver) {
  Speech speech(40);
  speech.SayTo(10);
  speech.SayTo(40, 12);
  speech.Say(40, 2);
  const Coverage& c = speech.Finish();
  EXPECT_EQ(c.skipped(), (Ranges{{10, 11}, {11, 12}}));
  EXPECT_EQ(c.spoken_tokens(), 38);
  EXPECT_FALSE(c.stopped_early());
}

TEST(CoverageTest, AWordIsVisibleInOneFrame) {
  Speech speech(20);
  speech.SayTo(5);
  speech.Say({{5, Coverage::kMinVisible + 0.01F}, {6, 0.8F}});
  speech.SayTo(20, 6);
  EXPECT_EQ(speech.Finish().skipped(), Ranges());
}

TEST(CoverageTest, ARepeatedPhrase) {
  Speech speech(40);
  speech.SayTo(20);
  speech.SayTo(18, 12);
  speech.SayTo(40, 20);
  const Coverage& c = speech.Finish();
  ASSERT_FALSE(c.repeated().empty());
  for (const TextRange& range : c.repeated()) {
    EXPECT_GE(range.begin, 12U);
    EXPECT_LT(range.begin, 18U);
  }
  EXPECT_EQ(c.skipped(), Ranges());
}

TEST(CoverageTest, AGlanceBackIsNoRepetition) {
  Speech speech(40);
  speech.SayTo(20);
  speech.Say(10, Coverage::kBackFrames - 1);
  speech.SayTo(40, 20);
  EXPECT_EQ(speech.Finish().repeated(), Ranges());
}

TEST(CoverageTest, AMissedEndIsSeenASecondLater) {
  Speech speech(20);
  speech.SayTo(20);
  int frames = 0;
  while (!speech.coverage().runaway() && frames < 100) {
    speech.Say(20, 1);
    ++frames;
  }
  EXPECT_LE(frames, Coverage::kEndFrames + TextPath::kLag + 1);
  EXPECT_GE(frames, 9) << "clean speech has up to nine frames behind its text";
  EXPECT_TRUE(speech.Finish().end_missed());
}

TEST(CoverageTest, ALongLastWordIsNoMissedEnd) {
  Speech speech(4, /*ends_with_mark=*/false);
  speech.SayTo(3);
  speech.Say(3, Coverage::kEndFrames + 4);
  EXPECT_FALSE(speech.Finish().end_missed());
}

TEST(CoverageTest, SpeechThatEndsBeforeItsText) {
  Speech speech(40);
  speech.SayTo(25);
  const Coverage& c = speech.Finish();
  EXPECT_TRUE(c.stopped_early());
  EXPECT_EQ(c.spoken_tokens(), 25);
  EXPECT_EQ(c.skipped().size(), 14U) << "words that were not reached";
}

TEST(CoverageTest, StandingStillAndGoingBackAgainAndAgainRunAway) {
  Speech stands(40);
  stands.SayTo(10);
  stands.Say(10, Coverage::kStandFrames);
  EXPECT_FALSE(stands.coverage().runaway());
  stands.Say(10, 10);
  EXPECT_TRUE(stands.coverage().runaway());
  Speech back(80);
  back.SayTo(60);
  for (int i = 0; i < 30 && !back.coverage().runaway(); ++i) {
    back.SayTo(40, 36);
    back.SayTo(62 + i / 2, 61 + i / 2);
  }
  EXPECT_TRUE(back.coverage().runaway());
}

TEST(CoverageTest, AHeadThatDoesNotFollowIsNotTrusted) {
  Speech away(20);
  for (int32_t token = 0; token < 20; ++token) away.Say({{token, 1.0F}}, 0.4F);
  EXPECT_FALSE(away.Finish().trusted());
  Speech flat(20);
  for (int i = 0; i < 60; ++i) {
    std::map<int32_t, float> attention;
    for (int32_t j = 0; j <= 20; ++j) attention[j] = 1.0F / 21;
    flat.Say(attention);
  }
  EXPECT_FALSE(flat.Finish().trusted());
  EXPECT_FALSE(flat.coverage().runaway()) << "nothing is known";
  EXPECT_FALSE(Coverage().trusted());
}

}  // namespace
}  // namespace qtts
