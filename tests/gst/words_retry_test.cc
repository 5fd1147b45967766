// SPDX-License-Identifier: LGPL-2.1-or-later
// Utterances that are made again because they are faulty.
#include <cstdint>
#include <string>
#include <vector>

#include "gstqttsretry.h"
#include "words_fixture.h"

namespace qtts::testing {
namespace {

class RetryTest : public WordsTest {
 protected:
  // A report with so many skipped words.
  static SpeechReport Skipping(size_t words) {
    SpeechReport report;
    report.measured = true;
    report.tokens = 10;
    report.spoken_tokens = 10 - words;
    for (size_t i = 0; i < words; ++i) report.skipped.push_back({2 * i, 2 * i + 1});
    return report;
  }
  // The fake engine's number of the utterances that were heard, in order.
  static std::vector<int64_t> Heard(Pipeline* pipeline) {
    std::vector<int64_t> heard;
    for (const auto& buffer : pipeline->record().buffers()) {
      if (heard.empty() || heard.back() != buffer.label.utterance) heard.push_back(buffer.label.utterance);
    }
    return heard;
  }
};

TEST_F(RetryTest, AFaultyUtteranceIsMadeAgainWithAnotherSeed) {
  script_.reasons[0] = EndReason::kRunaway;
  script_.reports[1] = Skipping(1);
  fake::SetScript(script_);
  Speak speak("text=\"a b c\" real-time=false retry=2");
  ReadMessages(&speak);
  EXPECT_EQ(Heard(&speak), std::vector<int64_t>{2});
  EXPECT_EQ(speak.text(), "a b c");
  const auto requests = fake::Requests();
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_NE(requests[1].seed, requests[0].seed);
  EXPECT_NE(requests[2].seed, requests[1].seed);
  EXPECT_EQ(requests[1].seed, gstqtts::SeedOfAttempt(requests[0].seed, 1));
  gint64 seed = 0;
  EXPECT_TRUE(gst_structure_get_int64(started(0), "seed", &seed));
  EXPECT_EQ(static_cast<uint64_t>(seed), requests[2].seed);
  guint retries = 0;
  EXPECT_TRUE(gst_structure_get_uint(finished(0), "retries", &retries));
  EXPECT_EQ(retries, 2U);
  EXPECT_EQ(GetStat(speak.src(), "retries"), 2U);
  EXPECT_EQ(GetStat(speak.src(), "runaways"), 0U);
  EXPECT_EQ(words_.size(), 3U) << "each once";
}

TEST_F(RetryTest, TheBestAttemptIsHeard) {
  script_.reports[0] = Skipping(2);
  script_.reports[1] = Skipping(1);
  script_.reports[2] = Skipping(3);
  fake::SetScript(script_);
  Speak speak("text=\"a b c d\" real-time=false retry=2");
  ReadMessages(&speak);
  EXPECT_EQ(Heard(&speak), std::vector<int64_t>{1});
  EXPECT_EQ(Texts(finished(0), "skipped"), std::vector<std::string>{"a"});
  gint64 seed = 0;
  EXPECT_TRUE(gst_structure_get_int64(started(0), "seed", &seed));
  EXPECT_EQ(static_cast<uint64_t>(seed), fake::Requests()[1].seed);
}

TEST_F(RetryTest, AnAttemptThatFailsIsNoFailure) {
  script_.reports[0] = Skipping(1);
  script_.reasons[1] = EndReason::kError;
  fake::SetScript(script_);
  Speak speak("text=\"a b c d\" real-time=false retry=2");
  ReadMessages(&speak);
  EXPECT_EQ(Heard(&speak), std::vector<int64_t>{0});
  EXPECT_EQ(fake::Requests().size(), 2U);
}

// With a seed, for speech in real time, by default, and for text that grows.
TEST_F(RetryTest, OthersAreSpokenAsTheyAre) {
  for (const char* properties : {"real-time=false retry=2 seed=5", "retry=2", "real-time=false",
                                 "real-time=false retry=2 segmentation=stream", "parallel=2 retry=0"}) {
    SCOPED_TRACE(properties);
    script_.reports[0] = Skipping(1);
    fake::Reset(script_);
    Speak speak(properties);
    speak.Push("a b c d").End().ExpectEnd();
    EXPECT_EQ(Heard(&speak), std::vector<int64_t>{0});
    EXPECT_EQ(fake::Requests().size(), 1U);
  }
}

// Whatever is made ahead has two retries by itself.
TEST_F(RetryTest, SpeechMadeAheadIsMadeAgain) {
  for (const char* properties : {"parallel=2", "parallel=4", "parallel=4 retry=5"}) {
    for (const int slots : {1, 2, 64}) {
      SCOPED_TRACE(properties + std::string(" ") + std::to_string(slots));
      script_.slots = slots;
      script_.reports[0] = Skipping(1);
      script_.reasons[2] = EndReason::kRunaway;
      fake::Reset(script_);
      Speak speak(properties);
      std::string text;
      for (int i = 0; i < 10; ++i) {
        const std::string line = "a b c d " + std::to_string(i);
        speak.Push(line);
        text += line;
      }
      speak.End().Expect(text);
      EXPECT_EQ(GetStat(speak.src(), "incomplete"), 0U);
      EXPECT_EQ(GetStat(speak.src(), "runaways"), 0U);
      EXPECT_EQ(GetStat(speak.src(), "retries"), 2U);
      EXPECT_EQ(fake::Requests().size(), 12U);
    }
  }
}

// While an utterance is made again nothing leaves, and an interrupt drops it.
TEST_F(RetryTest, AnInterruptEndsIt) {
  for (int64_t i = 0; i < 3; ++i) script_.reports[i] = Skipping(1);
  fake::SetScript(script_);
  Speak speak("real-time=false retry=2");
  fake::AllowFrames(10);  // one attempt, and a part of the next one
  speak.Push("a b c d");
  ASSERT_TRUE(WaitFor([] { return fake::Requests().size() == 2 && fake::GetCounters().frames == 10; }));
  EXPECT_EQ(speak.record().buffer_count(), 0U);
  EXPECT_EQ(speak.Interrupt(), 0U);
  fake::AllowFrames(-1);
  speak.Push("next one").End();
  ReadMessages(&speak);
  EXPECT_EQ(speak.text(), "next one");
}

// A text that is longer than what may wait leaves as it comes.
TEST_F(RetryTest, WhatWaitsIsBounded) {
  Speak speak("real-time=false retry=2");
  fake::AllowFrames(1499);
  speak.Push(std::string(1600, 'a'));
  ASSERT_TRUE(WaitFor([] { return fake::GetCounters().frames == 1499; }));
  EXPECT_EQ(speak.record().buffer_count(), 0U);
  fake::AllowFrames(1);
  ASSERT_TRUE(WaitFor([&] { return speak.record().buffer_count() == 1500; }));
  fake::AllowFrames(-1);
  speak.End().ExpectEnd();
  EXPECT_EQ(speak.record().buffer_count(), 1600U);
}

TEST_F(RetryTest, TheGuardsBoundIsPassedOn) {
  Speak("text=\"a b\" runaway-frames=9").ExpectEnd();
  EXPECT_EQ(fake::Requests().at(0).runaway_frames_per_token, 9);
}

}  // namespace
}  // namespace qtts::testing
