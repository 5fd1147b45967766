// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "unit/text/random_text.h"

namespace qtts {
namespace {

using std::string_literals::operator""s;
using Words = std::vector<std::string>;

Words Split(TokenizerPattern pattern, std::string_view text, bool open_end = false) {
  const auto splitter = PreTokenizer::Create(pattern);
  if (!splitter.ok()) {
    ADD_FAILURE() << splitter.status().message();
    return {};
  }
  const auto ends = splitter->Split(text, open_end);
  if (!ends.ok()) {
    ADD_FAILURE() << ends.status().message();
    return {};
  }
  Words words;
  size_t begin = 0;
  for (const size_t end : *ends) {
    words.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

TEST(PreTokenizer, Native) {
  const auto split = [](std::string_view text) { return Split(TokenizerPattern::kNative, text); };
  EXPECT_EQ(split(""), Words());
  EXPECT_EQ(split("Hello, world."), (Words{"Hello", ",", " world", "."}));
  EXPECT_EQ(split("it's WE'LL x'sy"), (Words{"it", "'s", " WE", "'LL", " x", "'s", "y"}));
  EXPECT_EQ(split("iPhone 12"), (Words{"iPhone", " ", "1", "2"}));
  EXPECT_EQ(split("a  b   c "), (Words{"a", " ", " b", "  ", " c", " "}));
  EXPECT_EQ(split("a \n\n b"), (Words{"a", " \n\n", " b"}));
  EXPECT_EQ(split("\n  \n  x"), (Words{"\n  \n", " ", " x"}));
  EXPECT_EQ(split("(x) //\n/"), (Words{"(x", ")", " //\n", "/"}));
  EXPECT_EQ(split("e\u0323x"), (Words{"e", "\u0323x"}));
  EXPECT_EQ(split("a\u180Eb\u2003c"), (Words{"a", "\u180Eb", "\u2003c"}));
  EXPECT_EQ(split("a\0b\0"s), (Words{"a", "\0b"s, "\0"s}));
}

TEST(PreTokenizer, Patched) {
  const auto split = [](std::string_view text) { return Split(TokenizerPattern::kPatched, text); };
  EXPECT_EQ(split("Hello, world."), (Words{"Hello", ",", " world", "."}));
  EXPECT_EQ(split("it's"), (Words{"it", "'s"}));
  EXPECT_EQ(split("iPhone HTTPServer ABC"), (Words{"i", "Phone", " HTTPServer", " ABC"}));
  EXPECT_EQ(split("//\n/"), (Words{"//\n/"}));
  EXPECT_EQ(split("e\u0323x"), (Words{"e\u0323x"}));
  EXPECT_EQ(split("A\u4E2DB"), (Words{"A\u4E2D", "B"}));
  EXPECT_EQ(split("A\u4E2DBc"), (Words{"A\u4E2DBc"}));
}

TEST(PreTokenizer, OpenEndKeepsBackWhatLaterTextCouldMove) {
  const auto split = [](std::string_view text) { return Split(TokenizerPattern::kNative, text, true); };
  EXPECT_EQ(split("Hello"), Words());
  EXPECT_EQ(split("Hello "), (Words{"Hello"}));
  EXPECT_EQ(split("Hello, w"), (Words{"Hello", ","}));
  EXPECT_EQ(split("a'"), (Words{"a"}));
  EXPECT_EQ(split("a'l"), (Words{"a"}));
  EXPECT_EQ(split("a \n  "), (Words{"a"}));  // another newline would join all the spaces
  EXPECT_EQ(split("a!\n "), (Words{"a", "!\n"}));
  EXPECT_EQ(split("12"), (Words{"1", "2"}));
  const auto patched = [](std::string_view text) { return Split(TokenizerPattern::kPatched, text, true); };
  EXPECT_EQ(patched("x A\u4E2DBB"), (Words{"x"}));  // a lower-case letter would join the whole word
}

TEST(PreTokenizer, OpenEndNeverMoves) {
  std::mt19937 rng(4);  // seed 4
  for (const TokenizerPattern pattern : {TokenizerPattern::kNative, TokenizerPattern::kPatched}) {
    for (int i = 0; i < 5000; ++i) {
      const std::string text = RandomText(&rng, 12);
      const Words decided = Split(pattern, text, true);
      Words whole = Split(pattern, text + RandomText(&rng, 6));
      ASSERT_LE(decided.size(), whole.size());
      whole.resize(decided.size());
      ASSERT_EQ(decided, whole) << text;
    }
  }
}

TEST(PreTokenizer, CoversAllText) {
  std::mt19937 rng(5);  // seed 5
  for (const TokenizerPattern pattern : {TokenizerPattern::kNative, TokenizerPattern::kPatched}) {
    for (int i = 0; i < 2000; ++i) {
      const std::string text = RandomText(&rng, 40);
      std::string joined;
      for (const std::string& word : Split(pattern, text)) {
        ASSERT_FALSE(word.empty());
        joined += word;
      }
      ASSERT_EQ(joined, text);
    }
  }
}

}  // namespace
}  // namespace qtts
