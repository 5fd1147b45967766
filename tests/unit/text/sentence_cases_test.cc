// SPDX-License-Identifier: LGPL-2.1-or-later
// The cases of tests/data/text/sentences-*.txt, a file a language, however the text is cut.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qtts/segmenter.h"
#include "qtts/utf8.h"

namespace qtts {
namespace {

struct SentenceCase {
  std::string language;
  std::string line;  // as in the file
  std::string text;
  std::vector<std::string> sentences;
};

// With the characters that the files' signs stand for.
std::string ReplaceSigns(std::string text) {
  static constexpr std::pair<std::string_view, std::string_view> kSigns[] = {
      {"⏎", "\n"}, {"␌", "\f"}, {"⍽", "\xC2\xA0"}, {"␣", "\xE2\x80\x83"}, {"|", ""}};
  for (const auto& [sign, characters] : kSigns) {
    for (size_t at = 0; (at = text.find(sign, at)) != std::string::npos; at += characters.size()) {
      text.replace(at, sign.size(), characters);
    }
  }
  return text;
}

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t end = 0; end != std::string_view::npos; text.remove_prefix(std::min(text.size(), end + 1))) {
    end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
  }
  return parts;
}

// The sentence that `marked` stands for: line ends are spaces.
std::string Unmark(const std::string& marked) {
  std::string text = ReplaceSigns(marked);
  std::string sentence;
  for (std::string_view rest = text; !rest.empty();) {
    const Utf8Char c = DecodeUtf8(rest);
    rest.remove_prefix(c.size);
    const bool line_end = c.code == '\n' || c.code == '\f';
    // White space at the ends of lines, and around the sentence, is no part of it.
    if (IsWhiteSpace(c.code) && (sentence.empty() || IsBlank(rest) || DecodeUtf8(rest).code == '\n')) continue;
    AppendUtf8(line_end ? U' ' : c.code, &sentence);
  }
  return sentence;
}

std::vector<SentenceCase> ReadCases() {
  std::vector<SentenceCase> cases;
  for (const auto& entry : std::filesystem::directory_iterator(QTTS_SENTENCES)) {
    const std::string name = entry.path().stem();
    if (!name.starts_with("sentences-")) continue;
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      if (line.empty() || line[0] == '#') continue;
      SentenceCase one = {name.substr(name.size() - 2), line, "", Split(line, '\t')};
      one.text = ReplaceSigns(one.sentences.front());
      if (one.sentences.size() > 1) {
        one.sentences.erase(one.sentences.begin());
      } else {
        one.sentences.clear();
        for (const std::string& marked : Split(line, '|')) one.sentences.push_back(Unmark(marked));
      }
      cases.push_back(std::move(one));
    }
  }
  return cases;
}

// Gives the text in pieces of the lengths that `length` returns.
template <typename Length>
std::vector<Sentence> Segment(std::string_view text, const Segmenter::Options& options, const Length& length) {
  Segmenter segmenter;
  segmenter.SetOptions(options);
  std::vector<Sentence> sentences;
  while (!text.empty()) {
    const std::string_view piece = Utf8Head(text, length());
    segmenter.Append(piece);
    text.remove_prefix(piece.size());
    while (auto sentence = segmenter.Next()) sentences.push_back(*std::move(sentence));
  }
  while (auto sentence = segmenter.NextAtEnd()) sentences.push_back(*std::move(sentence));
  EXPECT_TRUE(segmenter.empty());
  return sentences;
}

std::vector<Sentence> Segment(std::string_view text, const Segmenter::Options& options) {
  return Segment(text, options, [&] { return text.size() + 1; });
}

std::vector<std::string> Texts(const std::vector<Sentence>& sentences) {
  std::vector<std::string> texts;
  for (const Sentence& sentence : sentences) texts.push_back(sentence.text);
  return texts;
}

void ExpectEqual(const std::vector<Sentence>& sentences, const std::vector<Sentence>& whole) {
  ASSERT_EQ(Texts(sentences), Texts(whole));
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(sentences[i].source, whole[i].source);
    EXPECT_EQ(sentences[i].offset, whole[i].offset);
    EXPECT_EQ(sentences[i].before, whole[i].before);
    EXPECT_EQ(sentences[i].joins, whole[i].joins);
  }
}

// A sentence's source is where it says, and its characters are those of the text.
void ExpectPlacesAreRight(const Sentence& sentence, std::string_view text) {
  const std::string_view rest = text.substr(Utf8Head(text, sentence.offset).size());
  ASSERT_TRUE(rest.starts_with(sentence.source)) << sentence.offset << ": " << sentence.source;
  size_t position = 0;
  for (std::string_view spoken = sentence.text; !spoken.empty(); ++position) {
    const Utf8Char c = DecodeUtf8(spoken);
    spoken.remove_prefix(c.size);
    const size_t place = sentence.SourcePosition(position);
    const Utf8Char original =
        DecodeUtf8(std::string_view(sentence.source).substr(Utf8Head(sentence.source, place).size()));
    EXPECT_TRUE(c.code == original.code || (c.code == ' ' && IsWhiteSpace(original.code)))
        << position << " is at " << place << " of " << sentence.source;
  }
  EXPECT_EQ(sentence.SourcePosition(position), CountUtf8(sentence.source));
}

// Check: 46
TEST(SentenceCases, EachTextHasItsSentences) {
  const std::vector<SentenceCase> cases = ReadCases();
  EXPECT_GE(cases.size(), 200U);
  for (const SentenceCase& one : cases) {
    SCOPED_TRACE(one.language + ": " + one.line);
    EXPECT_EQ(Texts(Segment(one.text, {.language = one.language})), one.sentences);
  }
}

// Check: 46
TEST(SentenceCases, CutsOfTheTextMakeNoDifference) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::vector<SentenceCase> cases = ReadCases();
  std::string all;
  for (const SentenceCase& one : cases) {
    SCOPED_TRACE(one.line);
    const Segmenter::Options options = {.newline_ends = random() % 4 == 0,
                                        .skip_footnote_marks = random() % 2 == 0,
                                        .max_chars = random() % 4 == 0 ? 20U : 4000U,
                                        .language = one.language};
    const auto whole = Segment(one.text, options);
    ExpectEqual(Segment(one.text, options, [] { return 1; }), whole);
    ExpectEqual(Segment(one.text, options, [&] { return 1 + random() % 12; }), whole);
    for (const Sentence& sentence : whole) {
      ExpectPlacesAreRight(sentence, one.text);
      EXPECT_LE(CountUtf8(sentence.text), options.max_chars);
    }
    all += one.text + (random() % 2 == 0 ? "\n\n" : " ");
  }
  const auto whole = Segment(all, {});
  ExpectEqual(Segment(all, {}, [&] { return 1 + random() % 12; }), whole);
  for (const Sentence& sentence : whole) ExpectPlacesAreRight(sentence, all);
}

// Quadratic time would take hours.
// Check: 46
TEST(SentenceCases, TimeIsLinear) {
  constexpr size_t kSize = 200'000;
  for (const std::string_view unit : {".", "a.", "a. ", "a! ", "? [", "Inc. ", "\"", " ", "\n", "a-\n", "1.\n", "x"}) {
    SCOPED_TRACE(unit);
    std::string text = "a";
    while (text.size() < kSize) text += unit;
    text += "b";
    const size_t count = Segment(text, {}).size();
    EXPECT_EQ(Segment(text, {}, [] { return 1; }).size(), count);
  }
}

}  // namespace
}  // namespace qtts
