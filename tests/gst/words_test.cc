// SPDX-License-Identifier: LGPL-2.1-or-later
// Words that the engine measures, and their messages.
#include <string>
#include <utility>
#include <vector>

#include "gstqttscues.h"
#include "live_pipeline.h"
#include "words_fixture.h"

namespace qtts::testing {
namespace {

TEST_F(WordsTest, AreToldWithTimeAndDuration) {
  Speak speak("text=\"One, two \xC3\xBC\xC3\xBC!\"");
  ReadMessages(&speak);
  EXPECT_EQ(words_, (std::vector<Word>{{0, 3, 0, 3 * kFrame, false},
                                       {5, 3, 5 * kFrame, 3 * kFrame, false},
                                       {9, 2, 9 * kFrame, 2 * kFrame, false}}));
  ASSERT_EQ(finished_.size(), 1U);
  EXPECT_TRUE(GetFlag(finished(0), "measured"));
  EXPECT_EQ(GetField(finished(0), "text-spoken-chars"), 12U);
}

// However late they are known, and in whatever order frames and words come.
TEST_F(WordsTest, TimesDoNotDependOnWhenTheyAreKnown) {
  for (const int lag : {0, 1, 5, 20, 1000}) {
    SCOPED_TRACE(lag);
    script_.word_lag = lag;
    fake::SetScript(script_);
    words_.clear();
    Speak speak("text=\"A word, and one more.\"");
    ReadMessages(&speak);
    EXPECT_EQ(words_, (std::vector<Word>{{0, 1, 0, kFrame, false},
                                         {2, 4, 2 * kFrame, 4 * kFrame, false},
                                         {8, 3, 8 * kFrame, 3 * kFrame, false},
                                         {12, 3, 12 * kFrame, 3 * kFrame, false},
                                         {16, 4, 16 * kFrame, 4 * kFrame, false}}));
  }
}

// The words of a number are told as the number that is written.
TEST_F(WordsTest, SeveralSpokenWordsAreTheWrittenOne) {
  Speak speak("text=\"It costs $5, now.\" normalize=spoken");
  ReadMessages(&speak);  // "It costs five dollars, now."
  EXPECT_EQ(words_, (std::vector<Word>{{0, 2, 0, 2 * kFrame, false},
                                       {3, 5, 3 * kFrame, 5 * kFrame, false},
                                       {9, 2, 9 * kFrame, 12 * kFrame, false},
                                       {13, 3, 23 * kFrame, 3 * kFrame, false}}));
}

TEST_F(WordsTest, TimesAreThoseOfTheSoundThatLeaves) {
  script_.leading_silence = 1920;
  fake::SetScript(script_);
  Speak speak("text=\"ab cd\" trim-leading-silence=true leading-silence=1000000000");
  ReadMessages(&speak);
  // The first frame, 80 ms of silence, is cut.
  EXPECT_EQ(words_, (std::vector<Word>{{0, 2, 1000, kFrame, false}, {3, 2, 1000 + 2 * kFrame, 2 * kFrame, false}}));
}

// A head that fell silent: estimates after a while, and each word once.
TEST_F(WordsTest, AreEstimatedIfTheEngineDoesNotTellThem) {
  script_.word_lag = 100000;
  script_.reports[0] = SpeechReport();  // not measured
  fake::SetScript(script_);
  // last_words() has all of them at the end, so those that were estimated must not come again.
  const std::string text = "one two three four five six seven eight nine ten eleven twelve";
  Speak speak("text=\"" + text + "\"");
  ReadMessages(&speak);
  ASSERT_EQ(words_.size(), 12U);
  EXPECT_TRUE(words_[0].estimated);
  EXPECT_FALSE(words_[11].estimated);
  for (size_t i = 1; i < words_.size(); ++i) {
    EXPECT_GT(words_[i].offset, words_[i - 1].offset);
    EXPECT_GE(words_[i].time, words_[i - 1].time);
  }
}

// Positions count the text as it was written, not its joined lines.
TEST_F(WordsTest, PositionsInJoinedLinesAreOfTheSource) {
  Speak speak;
  speak.Open(GST_FORMAT_BYTES).Push("Some psycho-\nlogical\r\n   tests. ").End();
  ReadMessages(&speak);
  ASSERT_EQ(started_.size(), 1U);
  const std::string source = gst_structure_get_string(started(0), "text");
  EXPECT_EQ(source, "Some psycho-\nlogical\r\n   tests.");
  std::vector<std::string> words;
  for (const Word& word : words_) words.push_back(source.substr(word.offset, word.length));
  EXPECT_EQ(words, (std::vector<std::string>{"Some", "psycho-\nlogical", "tests"}));
  EXPECT_EQ(GetField(finished(0), "text-chars"), source.size());
  EXPECT_EQ(GetField(finished(0), "text-spoken-chars"), source.size());
}

TEST_F(WordsTest, TheFinishedMessageTellsWhatIsMissing) {
  SpeechReport report;
  report.measured = true;
  report.tokens = 8;
  report.spoken_tokens = 6;
  report.skipped = {{4, 7}};
  report.repeated = {{8, 14}};
  report.end_missed = true;
  script_.reports[0] = report;
  script_.reasons[0] = EndReason::kRunaway;
  fake::SetScript(script_);
  Speak speak(
      "text=\"\xC3\xBC"
      "b two \xC3\xBC"
      "bers.\"");
  ReadMessages(&speak);
  ASSERT_EQ(finished_.size(), 1U);
  EXPECT_STREQ(gst_structure_get_string(finished(0), "reason"), "runaway");
  EXPECT_TRUE(GetFlag(finished(0), "end-missed"));
  EXPECT_FALSE(GetFlag(finished(0), "stopped-early"));
  gdouble coverage = 0;
  EXPECT_TRUE(gst_structure_get_double(finished(0), "coverage", &coverage));
  EXPECT_DOUBLE_EQ(coverage, 0.75);
  EXPECT_EQ(Texts(finished(0), "skipped"), std::vector<std::string>{"two"});
  EXPECT_EQ(Numbers(finished(0), "skipped-chars"), (std::vector<guint64>{3, 3}));
  EXPECT_EQ(Texts(finished(0), "repeated"), std::vector<std::string>{"\xC3\xBC"
                                                                     "bers"});
  EXPECT_EQ(Numbers(finished(0), "repeated-chars"), (std::vector<guint64>{7, 5}));
  EXPECT_EQ(GetStat(speak.src(), "runaways"), 1U);
  EXPECT_EQ(GetStat(speak.src(), "measured"), 1U);
  EXPECT_EQ(GetStat(speak.src(), "incomplete"), 1U);
  EXPECT_EQ(GetStat(speak.src(), "words-skipped"), 1U);
  EXPECT_EQ(GetStat(speak.src(), "words-repeated"), 1U);
}

TEST_F(WordsTest, ATextThatEndsEarlyWasNotSpokenToItsEnd) {
  SpeechReport report;
  report.measured = report.stopped_early = true;
  report.tokens = 2;
  report.spoken_tokens = 1;
  script_.reports[0] = report;
  fake::SetScript(script_);
  Speak speak("text=\"two words?!\"");
  ReadMessages(&speak);
  EXPECT_STREQ(gst_structure_get_string(finished(0), "reason"), "complete");
  EXPECT_EQ(GetField(finished(0), "text-spoken-chars"), 9U) << "the end of the last word that was measured";
}

// At every frame but the first, which leaves before any word is known.
TEST_F(WordsTest, AnInterruptTellsTheCharacterThatWasHeard) {
  const std::string text = "abcd efghij kl mnopqrstu, vw";
  for (guint64 frames = 2; frames + 1 < text.size(); ++frames) {
    SCOPED_TRACE(frames);
    fake::Reset(script_);
    finished_.clear();
    LivePipeline pipeline("idle-mode=wait");
    pipeline.Push(text);
    ASSERT_TRUE(WaitFor([] { return fake::GetCounters().frames >= 25; }));
    ASSERT_TRUE(pipeline.AdvanceUntil(frames, kFrame * GST_MSECOND));
    ASSERT_TRUE(pipeline.WaitUntilSomebodyWaits());
    ASSERT_EQ(pipeline.Interrupt(), frames);
    while (finished_.empty()) {
      auto message = pipeline.Wait(GST_MESSAGE_ELEMENT);
      ASSERT_NE(message, nullptr);
      Take(std::move(message));
    }
    // A frame is a character; between two words the position is the end of the first.
    guint64 expected = frames;
    while (expected > 0 && !g_ascii_isalnum(text[expected - 1])) --expected;
    EXPECT_EQ(GetField(finished(0), "text-spoken-chars"), expected);
    EXPECT_FALSE(GetFlag(finished(0), "estimated"));
    EXPECT_EQ(gst_structure_has_field(finished(0), "coverage"), FALSE) << "the rest of it was not heard";
  }
}

}  // namespace
}  // namespace qtts::testing
