// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/part_splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "qtts/text_check.h"
#include "qtts/utf8.h"
#include "unit/text/random_text.h"

namespace qtts {
namespace {

using testing::ElementsAre;

constexpr PartBounds kBounds{20, 30, 40};

// All that Next() returns now, added to the last of `parts`.
void TakeParts(PartSplitter* splitter, std::vector<std::string>* parts, bool* open) {
  while (!*open || !splitter->done()) {
    const auto piece = splitter->Next();
    if (!piece) return;
    if (!*open) parts->emplace_back();
    parts->back() += piece->text;
    *open = !piece->ends_part;
  }
}

// The parts of a text that comes in these pieces; of one piece: that is whole.
std::vector<std::string> PartsOf(const std::vector<std::string>& pieces, const PartBounds& bounds = kBounds,
                                 const std::string& language = "en") {
  PartSplitter splitter(bounds, language);
  std::vector<std::string> parts;
  bool open = false;
  for (const std::string& piece : pieces) {
    splitter.Append(piece);
    if (pieces.size() > 1) TakeParts(&splitter, &parts, &open);
  }
  splitter.Finish();
  TakeParts(&splitter, &parts, &open);
  EXPECT_TRUE(splitter.done());
  EXPECT_FALSE(open);
  return parts;
}

std::vector<std::string> CutAnywhere(const std::string& text, std::mt19937* rng, size_t longest) {
  std::vector<std::string> pieces;
  std::uniform_int_distribution<size_t> size(1, longest);
  for (size_t i = 0; i < text.size();) {
    const size_t taken = std::min(size(*rng), text.size() - i);
    pieces.push_back(text.substr(i, taken));
    i += taken;
  }
  return pieces;
}

TEST(PartSplitterTest, PiecesSayWhereTheyAre) {
  const std::string text = " It is a fine day today.  We go out. \n ... And so on it goes, for ever and a day.";
  std::mt19937 rng(2);
  for (int round = 0; round < 50; ++round) {
    PartSplitter splitter(kBounds, "en");
    for (const std::string& cut : CutAnywhere(text, &rng, 1 + round)) {
      splitter.Append(cut);
      while (const auto piece = splitter.Next()) {
        EXPECT_EQ(text.substr(piece->begin, piece->text.size()), piece->text);
      }
    }
    splitter.Finish();
    while (!splitter.done()) {
      const auto piece = splitter.Next();
      ASSERT_TRUE(piece);
      EXPECT_EQ(text.substr(piece->begin, piece->text.size()), piece->text);
      if (piece->ends_part && piece->begin + piece->text.size() == text.size()) break;
    }
  }
}

TEST(PartSplitterTest, AShortTextIsOnePartAsItIs) {
  EXPECT_THAT(PartsOf({"  One.\n Two. "}), ElementsAre("  One.\n Two. "));
  EXPECT_THAT(PartsOf({"Twenty letters here. "}), ElementsAre("Twenty letters here. "));
  EXPECT_THAT(PartsOf({""}), ElementsAre());
}

TEST(PartSplitterTest, ASentenceEndsAPart) {
  EXPECT_THAT(PartsOf({"It is a fine day today. We go out. And so on it goes, for ever and a day."}),
              ElementsAre("It is a fine day today.", "We go out. And so on it goes, for ever", "and a day."));
}

TEST(PartSplitterTest, WhatFitsIsNotSplitIfItIsKnown) {
  const std::string text = "It is a fine day today. We go out.";
  EXPECT_THAT(PartsOf({text}), ElementsAre(text));
  EXPECT_THAT(PartsOf({text, ""}), ElementsAre("It is a fine day today.", "We go out."));
}

TEST(PartSplitterTest, AnAbbreviationDoesNot) {
  EXPECT_THAT(PartsOf({"This morning we met Dr. Smith. He was well."}),
              ElementsAre("This morning we met Dr. Smith.", "He was well."));
}

TEST(PartSplitterTest, AClauseDoesFurtherOn) {
  EXPECT_THAT(PartsOf({"We walked, ran and, what is more, climbed, all day and night."}),
              ElementsAre("We walked, ran and, what is more,", "climbed, all day and night."));
}

TEST(PartSplitterTest, OtherwiseTheLastWordThatFits) {
  EXPECT_THAT(PartsOf({"one two three four five six seven eight nine ten eleven"}),
              ElementsAre("one two three four five six seven eight", "nine ten eleven"));
}

TEST(PartSplitterTest, ALongRunIsCut) {
  const std::vector<std::string> parts = PartsOf({std::string(200, 'a')});
  EXPECT_GT(parts.size(), 3U);
  std::string joined;
  for (const std::string& part : parts) joined += part;
  EXPECT_EQ(joined, std::string(200, 'a'));
}

TEST(PartSplitterTest, IdeographsCountAsThree) {
  EXPECT_THAT(PartsOf({"今天的天气很好。我们去公园，然后回家吃饭，再看一会儿书。"}, kBounds, "zh"),
              ElementsAre("今天的天气很好。", "我们去公园，然后回家吃饭，", "再看一会儿书。"));
}

TEST(PartSplitterTest, WhatIsNotSpokenBeginsNoPart) {
  EXPECT_THAT(PartsOf({"It is a fine day today. *** -- We go out now, and we come back."}),
              ElementsAre("It is a fine day today.", "We go out now, and we come back."));
  EXPECT_THAT(PartsOf({"It is a fine day today. *** "}), ElementsAre("It is a fine day today. *** "));
}

// Nothing is held back within the first bound, and two words beyond it.
TEST(PartSplitterTest, TextIsReturnedAsItComes) {
  PartSplitter splitter(kBounds, "en");
  splitter.Append("It is a f");
  EXPECT_EQ(splitter.Next()->text, "It is a f");
  EXPECT_FALSE(splitter.Next());
  splitter.Append("ine day today. We");
  EXPECT_EQ(splitter.Next()->text, "ine day today.");
  EXPECT_FALSE(splitter.Next());
  splitter.Append(" go ");
  EXPECT_FALSE(splitter.Next());
  splitter.Append("out ");
  const auto end = splitter.Next();
  EXPECT_EQ(end->text, "");
  EXPECT_TRUE(end->ends_part);
  EXPECT_FALSE(splitter.done());
}

TEST(PartSplitterTest, HoweverTheTextIsCut) {
  std::mt19937 rng(7);
  const std::vector<std::string> texts = {
      "I can't. He won't. It is Bob's, they said, and (perhaps) \"mine\" too! What? Dr. Who met Mr. Smith at 3.15 p.m. "
      "in "
      "St. James's. No more - not one.\n\nA paragraph; another one: the last. https://example.com/watch?v=abc and so "
      "on.",
      "今天天气很好。我们去公园，然后回家吃饭，再看一会儿书。「好的。」他说！真的吗？是的……",
      "오늘은 날씨가 좋습니다. 우리는 공원에 갑니다, 그리고 집에 돌아와서 밥을 먹습니다. 끝."};
  for (const std::string& text : texts) {
    for (const PartBounds& bounds : {kBounds, PartBounds{1, 1, 1}, PartBounds::Of(12), PartBounds::Of(100)}) {
      const std::vector<std::string> whole = PartsOf({text, ""}, bounds);
      for (int i = 0; i < 20; ++i) ASSERT_EQ(PartsOf(CutAnywhere(text, &rng, 1 + i % 9), bounds), whole) << text;
    }
  }
  for (int i = 0; i < 300; ++i) {
    const std::string text = RandomBytes(&rng, 150);
    const PartBounds bounds = PartBounds::Of(1 + i % 60);
    ASSERT_EQ(PartsOf(CutAnywhere(text, &rng, 5), bounds), PartsOf({text, ""}, bounds)) << testing::PrintToString(text);
  }
}

TEST(PartSplitterTest, NothingThatIsSpokenIsLostAndNoPartIsTooLong) {
  std::mt19937 rng(8);
  const auto spoken = [](const std::string& text) {
    std::string letters;
    for (size_t i = 0; i < text.size();) {
      const Utf8Char c = DecodeUtf8(std::string_view(text).substr(i));
      std::string letter = text.substr(i, c.size);
      if (IsSayable(letter)) letters += letter;
      i += c.size;
    }
    return letters;
  };
  for (int i = 0; i < 300; ++i) {
    const std::string text = RandomText(&rng, 300);
    std::string joined;
    for (const std::string& part : PartsOf({text}, PartBounds::Of(60))) {
      joined += part;
      // A run without white space may be longer by the width of a word.
      EXPECT_LE(CountUtf8(part), 60U + 60U);
    }
    ASSERT_EQ(spoken(joined), spoken(text)) << testing::PrintToString(text);
  }
}

}  // namespace
}  // namespace qtts
