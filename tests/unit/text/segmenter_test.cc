// SPDX-License-Identifier: LGPL-2.1-or-later
// Sentences in the ten languages of the model, however the text is cut.
#include "qtts/segmenter.h"

#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qtts/language.h"
#include "qtts/utf8.h"

namespace qtts {
namespace {

using Sentences = std::vector<std::string>;

// Its text; "none" if there is none.
std::string TextOf(const std::optional<Sentence>& sentence) { return sentence ? sentence->text : "none"; }

Sentences Whole(const std::string& text, const Segmenter::Options& options = {}) {
  Segmenter segmenter;
  segmenter.SetOptions(options);
  segmenter.Append(text);
  Sentences sentences;
  while (auto sentence = segmenter.NextAtEnd()) sentences.push_back(sentence->text);
  EXPECT_TRUE(segmenter.empty());
  return sentences;
}

// Feeds character by character and takes sentences as they come.
Sentences Piecewise(const std::string& text, const Segmenter::Options& options, std::mt19937* random) {
  Segmenter segmenter;
  segmenter.SetOptions(options);
  Sentences sentences;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t count = random != nullptr ? std::uniform_int_distribution<size_t>(1, 12)(*random) : 1;
    const std::string_view piece = Utf8Head(rest, count);
    segmenter.Append(piece);
    rest.remove_prefix(piece.size());
    while (auto sentence = segmenter.Next()) sentences.push_back(sentence->text);
  }
  while (auto sentence = segmenter.NextAtEnd()) sentences.push_back(sentence->text);
  return sentences;
}

struct Case {
  const char* language;
  Sentences sentences;  // joined by a space in scripts that separate words by spaces
};

const Case kCases[] = {
    {"english",
     {"Dr. Smith met Mr. Jones at 3.30 p.m. on Jan. 5 in St. Louis.", "\"Are you there?\" she asked.", "No.",
      "He paid $4.50 (see fig. 3) to J. R. R. Tolkien, i.e. the author.", "Wait... what?!", "Yes!",
      "Visit example.com today."}},
    {"german",
     {"Am 3. Oktober kommt Prof. Dr. Maier.", "Das ist z. B. Gut, d. h. besser als nichts.",
      "\xE2\x80\x9EWarum?\xE2\x80\x9C fragte er.", "Es kostet ca. 5 Mio. Euro."}},
    {"french",
     {"M. Dupont et Mme Durand sont l\xC3\xA0.", "Quoi ?", "Voir p. 12, s.v.p. !", "C'est fini\xE2\x80\xA6 ou pas."}},
    {"spanish",
     {"El Sr. Garc\xC3\xAD"
      "a vive en la Avda. Mayor.",
      "\xC2\xBFQu\xC3\xA9 hora es?", "\xC2\xA1Ya voy!"}},
    {"italian", {"Il Sig. Rossi e il dott. Bianchi arrivano.", "Davvero?", "S\xC3\xAC, a pag. 7."}},
    {"portuguese", {"A Dra. Silva chegou.", "O Sr. Souza n\xC3\xA3o veio.", "Por qu\xC3\xAA?"}},
    {"russian",
     {"\xD0\x9F\xD1\x80\xD0\xBE\xD1\x84. \xD0\x98\xD0\xB2\xD0\xB0\xD0\xBD\xD0\xBE\xD0\xB2 \xD0\xB6\xD0\xB8\xD0\xBB "
      "\xD0\xB2 \xD0\xB3. \xD0\x9C\xD0\xBE\xD1\x81\xD0\xBA\xD0\xB2\xD0\xB0.",
      "\xD0\x90. \xD0\xA1. \xD0\x9F\xD1\x83\xD1\x88\xD0\xBA\xD0\xB8\xD0\xBD \xD0\xBF\xD0\xB8\xD1\x81\xD0\xB0\xD0\xBB.",
      "\xD0\x94\xD0\xB0?"}},
    {"chinese",
     {"\xE4\xBD\xA0\xE5\xA5\xBD\xE3\x80\x82",
      "\xE4\xBB\x8A\xE5\xA4\xA9\xE6\x98\xAF\xE6\x98\x9F\xE6\x9C\x9F\xE5\x87\xA0\xEF\xBC\x9F",
      "\xE4\xBB\x96\xE8\xAF\xB4\xEF\xBC\x9A\xE2\x80\x9C\xE5\xA5\xBD\xEF\xBC\x81\xE2\x80\x9D",
      "\xE5\x86\x8D\xE8\xA7\x81"}},
    {"japanese",
     {"\xE3\x81\x93\xE3\x82\x93\xE3\x81\xAB\xE3\x81\xA1\xE3\x81\xAF\xE3\x80\x82",
      "\xE5\x85\x83\xE6\xB0\x97\xE3\x81\xA7\xE3\x81\x99\xE3\x81\x8B\xEF\xBC\x9F",
      "\xE3\x81\xAF\xE3\x81\x84\xEF\xBC\x81"}},
    {"korean",
     {"\xEC\x95\x88\xEB\x85\x95\xED\x95\x98\xEC\x84\xB8\xEC\x9A\x94.",
      "\xEC\x9E\x98 \xEC\xA7\x80\xEB\x83\x88\xEC\x96\xB4\xEC\x9A\x94?", "\xEB\x84\xA4."}},
};

std::string Join(const Case& c) {
  const std::string language = c.language;
  std::string text;
  for (const std::string& sentence : c.sentences) {
    if (!text.empty() && language != "chinese" && language != "japanese") text += ' ';
    text += sentence;
  }
  return text;
}

TEST(Segmenter, FindsSentencesInTenLanguages) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.language);
    EXPECT_EQ(Whole(Join(c), {.language = std::string(ResolveLanguage(c.language).tag)}), c.sentences);
  }
}

// Check: 42
TEST(Segmenter, ALanguageThatChangesHoldsForWhatIsNotGivenOut) {
  Segmenter segmenter;
  segmenter.SetOptions({.language = "en"});
  segmenter.Append("Chapter 3. Next. ");
  segmenter.SetOptions({.language = "de"});
  segmenter.Append("Am 3. Mai. Ende.");
  Sentences sentences;
  while (auto sentence = segmenter.NextAtEnd()) sentences.push_back(sentence->text);
  EXPECT_EQ(sentences, (Sentences{"Chapter 3. Next.", "Am 3. Mai.", "Ende."}));
}

TEST(Segmenter, CutsOfTheTextMakeNoDifference) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::vector<std::string> pieces = {
      " ",  "\n",     "\r\n", "\n\n",  "\xE2\x80\xA8", "\xC2\x85",     ". ",           "5",        "a",  "B", "!", "\"",
      ") ", "z. B. ", "3. ",  "Fig. ", "...",          "\xE3\x80\x82", "\xE4\xBD\xA0", "\xCC\x81", "I. "};
  for (const Case& c : kCases) {
    for (const std::string& sentence : c.sentences) pieces.push_back(sentence);
  }
  for (int round = 0; round < 1500; ++round) {
    std::string text;
    const size_t count = std::uniform_int_distribution<size_t>(1, 20)(random);
    for (size_t i = 0; i < count; ++i) text += pieces[random() % pieces.size()] + (random() % 3 == 0 ? " " : "");
    const Segmenter::Options options = {.newline_ends = random() % 2 == 0,
                                        .max_chars = random() % 2 == 0 ? 4000U : 7U,
                                        .language = random() % 2 == 0 ? "de" : ""};
    SCOPED_TRACE(text);
    const Sentences whole = Whole(text, options);
    ASSERT_EQ(Piecewise(text, options, nullptr), whole);
    ASSERT_EQ(Piecewise(text, options, &random), whole);
    for (const std::string& sentence : whole) {
      ASSERT_LE(CountUtf8(sentence), options.max_chars);
      ASSERT_FALSE(IsBlank(sentence));
      ASSERT_EQ(Trim(sentence), sentence);
    }
  }
}

TEST(Segmenter, GivesASentenceOutWhenTheNextBegins) {
  Segmenter segmenter;
  segmenter.Append("One. ");
  EXPECT_FALSE(segmenter.Next());
  segmenter.Append("T");
  EXPECT_EQ(TextOf(segmenter.Next()), "One.");
  EXPECT_FALSE(segmenter.Next());
  segmenter.Append("wo! ");
  EXPECT_FALSE(segmenter.Next());
  segmenter.Append("3");
  EXPECT_EQ(TextOf(segmenter.Next()), "Two!");
  EXPECT_FALSE(segmenter.empty());
  EXPECT_EQ(TextOf(segmenter.NextAtEnd()), "3");
  EXPECT_TRUE(segmenter.empty());
  segmenter.Append("a. b");
  segmenter.Clear();
  EXPECT_TRUE(segmenter.empty());
  EXPECT_FALSE(segmenter.NextAtEnd());
}

TEST(Segmenter, LinesEndSentencesWhenAskedTo) {
  const std::string text = "a title\nsome text that\r\ngoes on.\n\n \nThe end";
  EXPECT_EQ(Whole(text), (Sentences{"a title some text that goes on.", "The end"}));
  EXPECT_EQ(Whole(text, {.newline_ends = true}), (Sentences{"a title", "some text that", "goes on.", "The end"}));
  Segmenter segmenter;
  segmenter.SetOptions({.newline_ends = true});
  segmenter.Append("typed\n");
  EXPECT_EQ(TextOf(segmenter.Next()), "typed") << "at once";
}

TEST(Segmenter, LongSentencesAreCutWhereALineCouldBe) {
  EXPECT_EQ(Whole("one two three four five", {.max_chars = 10}), (Sentences{"one two", "three", "four five"}));
  EXPECT_EQ(Whole("abcdefghij", {.max_chars = 4}), (Sentences{"abcd", "efgh", "ij"}));
  const Sentences parts = Whole(std::string(100000, 'x'), {.max_chars = 4000});
  ASSERT_EQ(parts.size(), 25U);
  for (const std::string& part : parts) EXPECT_EQ(part.size(), 4000U);
}

// The text so far, and the sentence that its last character decides.
TEST(Segmenter, NoSentenceWaitsLongerThanItMust) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"I can't. H", "I can't."},
      {"It is Bob\xE2\x80\x99s. T", "It is Bob\xE2\x80\x99s."},
      {"Wait! 3", "Wait!"},
      {"It fell. \"S", "It fell."},
      {"At Acme Inc. The ", "At Acme Inc."},
      {"It is so.[1] A", "It is so.[1]"},
      {"Steps:\n1. ", "Steps:"},
      {"A title\n\n", "A title"},
      {"A line\f", "A line"},
      {"\xE5\xA5\xBD\xE3\x80\x82\xE5\xA5\xBD", "\xE5\xA5\xBD\xE3\x80\x82"},
  };
  for (const auto& [text, sentence] : cases) {
    SCOPED_TRACE(text);
    Segmenter segmenter;
    segmenter.SetOptions({.language = "en"});
    segmenter.Append(text.substr(0, text.size() - DecodeLastUtf8(text).size));
    EXPECT_FALSE(segmenter.Next());
    segmenter.Append(text.substr(text.size() - DecodeLastUtf8(text).size));
    EXPECT_EQ(TextOf(segmenter.Next()), sentence);
  }
}

TEST(Segmenter, TellsWhatEndedBeforeASentence) {
  const std::string text =
      "Chapter 1\n\nIt rained. It was late.\nStill.\n \nA title\n\n\nShort.\n\n1. One\n2. Two\n\nSo he said:\n\nEnd";
  using enum SentenceGap;
  const std::vector<std::pair<std::string, SentenceGap>> expected = {
      {"Chapter 1", kSentence},    {"It rained.", kHeading}, {"It was late.", kSentence}, {"Still.", kSentence},
      {"A title", kParagraph},     {"Short.", kHeading},     {"1. One", kParagraph},      {"2. Two", kSentence},
      {"So he said:", kParagraph}, {"End", kParagraph}};
  for (const bool newline_ends : {false, true}) {
    Segmenter segmenter;
    segmenter.SetOptions({.newline_ends = newline_ends});
    std::vector<std::pair<std::string, SentenceGap>> sentences;
    for (const char c : text) {
      segmenter.Append({&c, 1});
      while (auto sentence = segmenter.Next()) sentences.emplace_back(sentence->text, sentence->before);
    }
    while (auto sentence = segmenter.NextAtEnd()) sentences.emplace_back(sentence->text, sentence->before);
    EXPECT_EQ(sentences, expected);
  }
  // A heading that a time-out ends is one all the same.
  Segmenter segmenter;
  segmenter.Append("Chapter 1");
  EXPECT_EQ(TextOf(segmenter.NextAtEnd()), "Chapter 1");
  segmenter.Append("\n\nIt rained.");
  const auto next = segmenter.NextAtEnd();
  ASSERT_TRUE(next);
  EXPECT_EQ(next->before, kHeading);
}

TEST(Segmenter, TellsWhereASentenceIs) {
  Segmenter segmenter;
  segmenter.Append(" \xC3\x84h.  It was psycho-\n  logical [1] and\r\nlate. E");
  const auto first = segmenter.Next();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->offset, 1U);
  EXPECT_EQ(first->source, "\xC3\x84h.");
  const auto second = segmenter.Next();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->text, "It was psychological [1] and late.");
  EXPECT_EQ(second->source, "It was psycho-\n  logical [1] and\r\nlate.");
  EXPECT_EQ(second->offset, 6U);
  EXPECT_EQ(second->SourcePosition(12), 12U) << "o";
  EXPECT_EQ(second->SourcePosition(13), 17U) << "l";
  EXPECT_EQ(second->SourcePosition(28), 32U) << "the joined line end";
  EXPECT_EQ(second->SourcePosition(29), 34U) << "late";
  segmenter.Clear();
  segmenter.Append("A.");
  EXPECT_EQ(segmenter.NextAtEnd()->offset, 0U);
}

TEST(Segmenter, FootnoteMarksMayBeSkipped) {
  const Segmenter::Options skip = {.skip_footnote_marks = true};
  EXPECT_EQ(Whole("The sky is blue.[1] It is high[2], so[a] high.[12][13] Yes.\xC2\xB9 No.", skip),
            (Sentences{"The sky is blue.", "It is high, so high.", "Yes.", "No."}));
  const Sentences kept = {"[1] is a mark, x[1](y) and m\xC2\xB2 and a[1]b and [See] and (1) are none."};
  EXPECT_EQ(Whole(kept[0], skip), kept);
  EXPECT_EQ(Whole("Blue.[1] It"), (Sentences{"Blue.[1]", "It"}));
}

TEST(Segmenter, WithoutALanguageAllLanguagesApply) {
  EXPECT_EQ(Whole("Acme Inc. Das Haus. Gómez S.A. Pero no. Dr. Der Mann."),
            (Sentences{"Acme Inc.", "Das Haus.", "Gómez S.A.", "Pero no.", "Dr. Der Mann."}));
}

// These are in no list of this project.
TEST(Segmenter, AbbreviationsOfCldrApply) {
  EXPECT_EQ(Whole("Es ist Dipl.-Kfm. Meier da.", {.language = "de"}).size(), 1U);
  EXPECT_EQ(Whole("He is in Hartford, Conn. Bob is.", {.language = "en"}).size(), 1U);
  EXPECT_EQ(Whole("He is in Hartford, Conn. Bob is.", {.language = "de"}).size(), 2U);
  EXPECT_EQ(Whole("That is all. Bob goes.", {.language = "en"}).size(), 2U) << "an ordinary word";
}

TEST(CutPosition, PrefersSentencesThenLines) {
  EXPECT_EQ(CutPosition("short", 5), 5U);
  EXPECT_EQ(CutPosition("One. Two three", 12), 5U);
  EXPECT_EQ(CutPosition("one two three", 9), 8U);
  EXPECT_EQ(CutPosition("\xC3\xBC\xC3\xBC\xC3\xBC", 2), 4U);
}

}  // namespace
}  // namespace qtts
