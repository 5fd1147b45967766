// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/word_finder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "unit/text/random_text.h"

namespace qtts {
namespace {

using testing::ElementsAre;

std::vector<TextRange> RangesOf(const std::string& text) {
  WordFinder finder;
  finder.Append(text);
  finder.Finish();
  return finder.Take();
}

std::vector<std::string> WordsOf(const std::string& text) {
  std::vector<std::string> words;
  for (const TextRange& range : RangesOf(text)) words.push_back(text.substr(range.begin, range.end - range.begin));
  return words;
}

TEST(WordFinderTest, Words) {
  EXPECT_THAT(WordsOf("Hello, \"world\" - it's 3.14 o'clock.\n"),
              ElementsAre("Hello", "world", "it's", "3.14", "o'clock"));
  EXPECT_THAT(WordsOf("…!? - "), ElementsAre());
  EXPECT_THAT(WordsOf(""), ElementsAre());
  EXPECT_THAT(WordsOf("Straße, Über, naïve"), ElementsAre("Straße", "Über", "naïve"));
  EXPECT_THAT(WordsOf("$ 5"), ElementsAre("$", "5")) << "what is said is a word";
  EXPECT_THAT(WordsOf("中文。日本語"), testing::Contains("中文"));
}

TEST(WordFinderTest, AWordComesWhenTheNextOneBegins) {
  WordFinder finder;
  finder.Append("Hel");
  finder.Append("lo");
  EXPECT_THAT(finder.Take(), ElementsAre());
  finder.Append(", wor");
  EXPECT_THAT(finder.Take(), ElementsAre(TextRange{0, 5}));
  finder.Append("ld ");
  EXPECT_THAT(finder.Take(), ElementsAre()) << "a mark may follow the space";
  finder.Finish();
  EXPECT_THAT(finder.Take(), ElementsAre(TextRange{7, 12}));
}

TEST(WordFinderTest, CutsChangeNothing) {
  std::mt19937 random(4);
  for (int round = 0; round < 300; ++round) {
    std::string text = RandomBytes(&random, 80);
    if (round % 3 == 0) text = "It's a fine day, isn't it? 今日はいい天気です。ครับ " + text;
    const std::vector<TextRange> expected = RangesOf(text);
    WordFinder finder;
    std::vector<TextRange> words;
    for (size_t at = 0; at < text.size();) {
      const size_t size = 1 + random() % 7;
      finder.Append(std::string_view(text).substr(at, size));
      at += size;
      for (const TextRange& word : finder.Take()) words.push_back(word);
    }
    finder.Finish();
    for (const TextRange& word : finder.Take()) words.push_back(word);
    ASSERT_EQ(words, expected) << round;
    for (size_t i = 1; i < words.size(); ++i) ASSERT_GE(words[i].begin, words[i - 1].end);
  }
}

TEST(WordFinderTest, ALongTextWithoutSpaceIsCut) {
  const std::string text(3 * WordFinder::kMaxPending, 'a');
  WordFinder finder;
  for (const char c : text) finder.Append(std::string_view(&c, 1));
  EXPECT_FALSE(finder.Take().empty());
  finder.Finish();
  const std::vector<TextRange> whole = RangesOf(text);
  EXPECT_EQ(whole.size(), 3U);
}

}  // namespace
}  // namespace qtts
