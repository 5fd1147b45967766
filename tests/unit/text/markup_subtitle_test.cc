// SPDX-License-Identifier: LGPL-2.1-or-later
#include <gtest/gtest.h>

#include <iterator>
#include <random>
#include <string>

#include "qtts/markup.h"
#include "unit/text/markup_documents.h"

namespace qtts {
namespace {

std::string Subtitle(std::string_view text) { return ReadGrowing(text, OptionsOf(Markup::kSubtitle)).text; }

TEST(Subtitle, SpeaksACueWithoutItsTags) {
  static constexpr struct {
    const char* written;
    const char* spoken;
  } kRows[] = {
      {"{\\an8}Up <i>here</i>.", "Up here.|"},
      {"{y:i}Slanted {\\i1}words{\\i0}", "Slanted words|"},
      {"<v Bob>Hello <c.loud>you</c>", "Hello you|"},
      {"<00:00:01.000>Now <00:00:03.5>then", "Now then|"},
      {"JOHN: Hello.", "Hello.|"},
      {"- JOHN: Hello.\n- MARY-ANN #2: Hi.", "Hello.|Hi.|"},
      {"- Hello.\n- Hi.", "Hello.|Hi.|"},
      {">> REPORTER: Good evening.", "Good evening.|"},
      {"<i>JOHN:</i> Hello.", "Hello.|"},
      {"Note: keep this. At 10:30.", "Note: keep this. At 10:30.|"},
      {"[MUSIC] Hello [sighs] there", "Hello there|"},
      {"[long\nsound] Hello", "Hello|"},
      {"(SIGHS) Well (so to say) yes.", "Well (so to say) yes.|"},
      {"(door closes)", ""},
      {"♪ La la ♫", "La la|"},
      {"Tom &amp; Jerry&lrm; \\Nnext\\hline", "Tom & Jerry next line|"},
      {"3 < 4 and -5", "3 < 4 and -5|"},
      {"<ruby>day<rt>dei</rt></ruby>", "day|"},
      {"1984", "1984|"},
      {"{curly} stays", "{curly} stays|"},
  };
  for (const auto& row : kRows) EXPECT_EQ(Subtitle(row.written), row.spoken) << row.written;
}

TEST(Subtitle, ReadsWholeFiles) {
  EXPECT_EQ(Subtitle(ReadTestFile("film.srt")),
            "Once upon a time,\nthere was a fox.|Where is it?|Over there.\nLa la la\nIt was 1984.\nTom & Jerry|");
  EXPECT_EQ(Subtitle(ReadTestFile("talk.vtt")), "Hello everybody.|Good day!|");
}

TEST(Subtitle, IsTheSameHoweverItIsCut) {
  std::mt19937 rng(3);
  for (const char* const file : {"film.srt", "talk.vtt"}) {
    CheckDocument(ReadTestFile(file), OptionsOf(Markup::kSubtitle), &rng, 20);
  }
  static constexpr const char* kPieces[] = {"<i>",    "</i>",  "<",      ">",     "{\\an8}",
                                            "{",      "}",     "[",      "]",     "(",
                                            ")",      "\n",    "\n\n",   "7",     "00:00:01,000 --> 00:00:02,000",
                                            "JOHN: ", "- ",    "♪",      "word ", "WEBVTT",
                                            "NOTE",   "&amp;", "&",      ";",     "\\N",
                                            "\\",     "<rt>",  "</rt>",  "é",     "\r\n",
                                            "A",      ":",     "<v Bob>"};
  std::uniform_int_distribution<size_t> pick(0, std::size(kPieces) - 1);
  std::uniform_int_distribution<int> count(0, 30);
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (int k = count(rng); k > 0; --k) text += kPieces[pick(rng)];
    ASSERT_NO_FATAL_FAILURE(CheckDocument(text, OptionsOf(Markup::kSubtitle), &rng, 2));
  }
}

}  // namespace
}  // namespace qtts
