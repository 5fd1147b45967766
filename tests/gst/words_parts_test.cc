// SPDX-License-Identifier: LGPL-2.1-or-later
// Parts of which words, cues and retries are made.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gstqttscues.h"
#include "gstqttsposition.h"
#include "gstqttsretry.h"
#include "gstqttswordtrack.h"
#include "qtts/utf8.h"
#include "support.h"

namespace qtts::testing {
namespace {

using gstqtts::CueMaker;
using gstqtts::Granularity;
using gstqtts::Retries;
using gstqtts::SoundPlaces;
using gstqtts::TextPosition;
using gstqtts::TimedText;
using gstqtts::TimedWord;
using gstqtts::Told;
using gstqtts::WordTrack;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

TEST(SoundPlaces, MapsAcrossGapsAndCuts) {
  SoundPlaces places;
  EXPECT_TRUE(places.empty());
  // 40 ms were cut off, and a frame is late by 20 ms.
  places.Add({{960, 1920, 960}}, 960, 24000, {1'000'000'000, 500'000'000});
  places.Add({{1920, 3840, 1920}}, 1920, 24000, {1'040'000'000, 540'000'000});
  places.Add({{3840, 5760, 1920}}, 1920, 24000, {1'140'000'000, 640'000'000});
  EXPECT_EQ(places.begin(), milliseconds(40));
  EXPECT_EQ(places.end(), milliseconds(240));
  const auto time = [&](int ms) { return places.At(milliseconds(ms)).time / 1'000'000; };
  EXPECT_EQ(time(0), 500U);
  EXPECT_EQ(time(40), 500U);
  EXPECT_EQ(time(100), 560U);
  EXPECT_EQ(time(159), 619U);
  EXPECT_EQ(time(160), 640U);
  EXPECT_EQ(time(1000), 720U);
  EXPECT_EQ(places.At(milliseconds(100)).running_time, 1'060'000'000U);
}

TEST(WordTrack, TakesWordsInOrderAndJoinsThoseOfOneWrittenWord) {
  WordTrack track;
  track.Add({0, 2, milliseconds(0), milliseconds(100)}, false);
  track.Add({3, 5, milliseconds(150), milliseconds(100)}, true);
  EXPECT_EQ(track.Take(milliseconds(200)), (std::vector<TimedWord>{{0, 2, milliseconds(0), milliseconds(100)}}));
  EXPECT_EQ(track.known_until(milliseconds(200)), milliseconds(150));
  EXPECT_EQ(track.SpokenAt(milliseconds(200)), 4U);
  track.Add({3, 5, milliseconds(250), milliseconds(100)}, false);
  EXPECT_EQ(track.Take(milliseconds(200)), (std::vector<TimedWord>{{3, 5, milliseconds(150), milliseconds(200)}}));
  track.SkipTo(10);
  track.Add({6, 9, milliseconds(400), milliseconds(100)}, false);
  track.Add({8, 12, milliseconds(300), milliseconds(300)}, false);
  EXPECT_EQ(track.Take(milliseconds(1000)), (std::vector<TimedWord>{{10, 12, milliseconds(300), milliseconds(300)}}));
}

TEST(WordTrack, StartsNeverGoBack) {
  WordTrack track;
  track.Add({0, 2, milliseconds(500), milliseconds(100)}, false);
  track.Add({3, 5, milliseconds(400), milliseconds(300)}, false);
  const auto words = track.Take(nanoseconds::max());
  ASSERT_EQ(words.size(), 2U);
  EXPECT_EQ(words[1], (TimedWord{3, 5, milliseconds(500), milliseconds(200)}));
}

TEST(TextPosition, GoesOnFromWhatWasMeasured) {
  TextPosition position;
  position.Append("aaaa bbbb cccc dddd eeee");
  // By the estimate a word takes 0.28 s.
  position.Anchor(9, 5.0);
  EXPECT_EQ(position.spoken(), 9U);
  EXPECT_EQ(position.Advance(5.1), (std::vector<TextPosition::Word>{{10, 4}}));
  EXPECT_EQ(position.Advance(5.5), (std::vector<TextPosition::Word>{{15, 4}}));
  position.Anchor(14, 6.0);  // it was ahead
  EXPECT_TRUE(position.Advance(6.2).empty()) << "each word once";
  EXPECT_EQ(position.Advance(100), (std::vector<TextPosition::Word>{{20, 4}}));
}

TEST(TextPosition, FindsTheWrittenTextOfSpokenBytes) {
  TextPosition position;
  // "$5" is spoken as two words.
  position.Append("\xC3\xBC five dollars now", {{0, 2, 0, 2, true}, {2, 14, 2, 4, false}, {14, 18, 4, 8, true}});
  EXPECT_EQ(position.Written({0, 2}), (TextPosition::Run{0, 1, false}));
  EXPECT_EQ(position.Written({3, 7}), (TextPosition::Run{2, 4, true}));
  EXPECT_EQ(position.Written({8, 15}), (TextPosition::Run{2, 4, false}));
  EXPECT_EQ(position.Written({16, 19}), (TextPosition::Run{5, 8, false}));
  EXPECT_EQ(position.Written({0, 2}), (TextPosition::Run{0, 1, false})) << "in any order";
  const TextPosition::Run beyond = position.Written({500, 600});
  EXPECT_EQ(beyond.begin, beyond.end);
}

gstqtts::Attempt NewAttempt(EndReason reason, size_t skipped, uint64_t seed) {
  gstqtts::Attempt attempt;
  attempt.end.reason = reason;
  attempt.end.report.measured = true;
  attempt.end.report.skipped.resize(skipped);
  attempt.seed = seed;
  return attempt;
}

TEST(Retries, StopAtTheFirstGoodOneAndKeepTheBest) {
  Retries none;
  auto attempt = NewAttempt(EndReason::kRunaway, 3, 1);
  EXPECT_FALSE(none.Judge(&attempt));
  EXPECT_EQ(attempt.seed, 1U);

  Retries two(2);
  attempt = NewAttempt(EndReason::kComplete, 1, 1);
  EXPECT_TRUE(two.Judge(&attempt));
  attempt = NewAttempt(EndReason::kComplete, 0, 2);
  EXPECT_FALSE(two.Judge(&attempt));
  EXPECT_EQ(attempt.seed, 2U);
  EXPECT_EQ(two.made(), 1);

  Retries three(3);
  attempt = NewAttempt(EndReason::kRunaway, 0, 1);
  EXPECT_TRUE(three.Judge(&attempt));
  attempt = NewAttempt(EndReason::kComplete, 1, 2);
  EXPECT_TRUE(three.Judge(&attempt));
  attempt = NewAttempt(EndReason::kComplete, 1, 3);
  EXPECT_TRUE(three.Judge(&attempt));
  attempt = NewAttempt(EndReason::kBusy, 0, 4);
  EXPECT_FALSE(three.Judge(&attempt));
  EXPECT_EQ(attempt.seed, 2U);
}

TEST(Retries, SeedsDiffer) {
  EXPECT_EQ(gstqtts::SeedOfAttempt(7, 0), 7U);
  EXPECT_NE(gstqtts::SeedOfAttempt(7, 1), gstqtts::SeedOfAttempt(7, 2));
  EXPECT_LT(gstqtts::SeedOfAttempt(7, 1), uint64_t{1} << 53U);
}

// Words of 100 ms each, one every 200 ms; every run of letters is one.
std::vector<TimedText> MakeCues(Granularity granularity, const std::string& text, uint64_t gap_after = SIZE_MAX) {
  Told told;
  told.id = 1;
  told.text = text;
  uint64_t time = 0;
  size_t begin = 0;
  std::u32string characters;
  for (std::string_view rest = text; !rest.empty();) {
    const Utf8Char character = DecodeUtf8(rest);
    rest.remove_prefix(character.size);
    characters.push_back(character.code);
  }
  while (begin < characters.size()) {
    size_t end = begin;
    while (end < characters.size() && g_unichar_isalnum(characters[end]) && (end == begin || characters[end] < 0x3000))
      ++end;
    if (end > begin) {
      told.words.push_back({begin, end, time * GST_MSECOND, 100 * GST_MSECOND});
      time += told.words.size() == gap_after ? 2000 : 200;
    }
    begin = std::max(end, begin + 1);
  }
  told.over = true;
  return CueMaker(granularity).Add(told);
}

std::vector<std::string> TextsOf(const std::vector<TimedText>& cues) {
  std::vector<std::string> texts;
  for (const TimedText& cue : cues) texts.push_back(cue.text);
  return texts;
}

TEST(CueMaker, SentencesAreWholeAndHaveSingleSpaces) {
  const auto cues = MakeCues(Granularity::kSentence, " \"A  b\nc,\" she  said. (And\tnow?) Yes ");
  EXPECT_EQ(TextsOf(cues), (std::vector<std::string>{"\"A b c,\" she said.", "(And now?)", "Yes"}));
  EXPECT_EQ(cues[1].time, 1000 * GST_MSECOND);
  EXPECT_EQ(cues[1].duration, 300 * GST_MSECOND);
}

TEST(CueMaker, CuesFitTwoLines) {
  const auto cues =
      MakeCues(Granularity::kCue,
               "It was the best of times, it was the worst of times, it was the age of wisdom, it was the "
               "age of foolishness, it was the epoch of belief.");
  EXPECT_EQ(TextsOf(cues), (std::vector<std::string>{"It was the best of times,\nit was the worst of times,",
                                                     "it was the age of wisdom,\nit was the age of foolishness,",
                                                     "it was the epoch of belief."}));
  const std::string word(30, 'x');
  for (const auto& cue : MakeCues(Granularity::kCue, word + " " + word + " " + word + " " + word)) {
    EXPECT_EQ(cue.text, word + "\n" + word);
  }
}

TEST(CueMaker, WideCharactersHaveTwoColumns) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "\xE5\xA4\xA9";
  const auto cues = MakeCues(Granularity::kCue, text);
  ASSERT_EQ(cues.size(), 2U);
  EXPECT_EQ(cues[0].text.size(), 42U * 3 + 1) << "two lines of 21, and a line feed";
  EXPECT_EQ(cues[0].text[21 * 3], '\n');
}

TEST(CueMaker, ACueEndsAtALongPause) {
  EXPECT_EQ(TextsOf(MakeCues(Granularity::kCue, "one two three", 2)), (std::vector<std::string>{"one two", "three"}));
  EXPECT_EQ(TextsOf(MakeCues(Granularity::kSentence, "one two three", 2)), std::vector<std::string>{"one two three"});
}

// Nothing is shown twice or lost, whatever the words are.
TEST(CueMaker, TakesAnyWords) {
  uint32_t random = 1;
  const auto next = [&random](uint32_t below) {
    random = random * 1664525U + 1013904223U;
    return (random >> 8U) % below;
  };
  for (int round = 0; round < 300; ++round) {
    for (const Granularity granularity : {Granularity::kWord, Granularity::kSentence, Granularity::kCue}) {
      CueMaker maker(granularity);
      std::string text;
      for (uint32_t i = 0; i < 5 + next(60); ++i) text += " .,ab\"(\n-"[next(9)];
      Told told;
      told.id = 1 + next(2);
      told.text = text.substr(0, next(static_cast<uint32_t>(text.size())));
      size_t shown = 0;
      for (int part = 0; part < 4; ++part) {
        told.words.clear();
        for (uint32_t i = 0; i < next(4); ++i) {
          const size_t begin = next(70);
          told.words.push_back({begin, begin + next(10), next(1000), next(1000)});
        }
        for (const TimedText& cue : maker.Add(told)) shown += cue.text.size();
        told.text = text;
      }
      for (const TimedText& cue : maker.End()) shown += cue.text.size();
      EXPECT_LE(shown, 2 * text.size());
      EXPECT_FALSE(maker.begun());
    }
  }
}

}  // namespace
}  // namespace qtts::testing
