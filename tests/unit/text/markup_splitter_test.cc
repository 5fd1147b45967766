// SPDX-License-Identifier: LGPL-2.1-or-later
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "qtts/markup.h"
#include "unit/text/markup_documents.h"

namespace qtts {
namespace {

Segmenter::Options English() {
  Segmenter::Options options;
  options.language = "en";
  return options;
}

// The parts in one line: utterances in brackets, an open one without the closing bracket.
std::string Describe(const std::vector<MarkupPart>& parts) {
  std::string text;
  for (const MarkupPart& part : parts) {
    switch (part.kind) {
      case MarkupPart::Kind::kText:
        text += (part.begins ? "[" : "") + part.text + (part.ends ? "]" : "");
        break;
      case MarkupPart::Kind::kBreak:
        text += "<" + std::to_string(part.duration.count() / 1000000) + ">";
        break;
      case MarkupPart::Kind::kMark:
        text += "{" + part.name + "}";
        break;
    }
  }
  return text;
}

void TakeAll(MarkupSplitter* splitter, std::vector<MarkupPart>* parts) {
  while (auto part = splitter->Next()) parts->push_back(*std::move(part));
}

std::vector<MarkupPart> Split(std::string_view text, Markup markup, MarkupUnits units,
                              const std::vector<size_t>& cuts = {}) {
  MarkupSplitter splitter(OptionsOf(markup), units, English());
  std::vector<MarkupPart> parts;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    EXPECT_TRUE(splitter.Append(text.substr(begin, cut - begin)).ok());
    TakeAll(&splitter, &parts);
    begin = cut;
  }
  EXPECT_TRUE(splitter.Append(text.substr(begin)).ok());
  splitter.Finish();
  TakeAll(&splitter, &parts);
  EXPECT_TRUE(splitter.idle());
  return parts;
}

// Puts the parts of utterances that grow together.
std::vector<MarkupPart> Joined(const std::vector<MarkupPart>& parts) {
  std::vector<MarkupPart> joined;
  for (const MarkupPart& part : parts) {
    if (part.kind != MarkupPart::Kind::kText || part.begins) {
      joined.push_back(part);
      continue;
    }
    MarkupPart& to = joined.back();
    to.text += part.text;
    to.source += part.source;
    to.marks.insert(to.marks.end(), part.marks.begin(), part.marks.end());
    TextMap map;
    map.Append(to.map);
    map.Append(part.map);
    to.map = map.pieces();
    to.ends = part.ends;
  }
  return joined;
}

TEST(MarkupSplitter, EndsUtterancesWhereADocumentSwitches) {
  constexpr const char* kText =
      "<speak><p>One. Two <mark name='a'/>three.</p><break time='1s'/><mark name='b'/><p>Four <voice "
      "name='x'>five</voice> "
      "six. <mark name='c'/></p></speak>";
  const std::vector<MarkupPart> sentences = Split(kText, Markup::kSsml, MarkupUnits::kSentences);
  EXPECT_EQ(Describe(sentences), "[One.][Two three.]<1000>{b}[Four][five][six.]{c}");
  ASSERT_EQ(sentences[1].marks.size(), 1U);
  EXPECT_EQ(sentences[1].marks[0].text, 4U);
  EXPECT_EQ(sentences[1].marks[0].name, "a");
  EXPECT_EQ(sentences[1].source, "Two <mark name='a'/>three.");
  EXPECT_TRUE(sentences[4].after_break);
  EXPECT_FALSE(sentences[5].after_break);
  EXPECT_EQ(sentences[5].settings.voices, std::vector<std::string>{"x"});
  EXPECT_EQ(Describe(Split(kText, Markup::kSsml, MarkupUnits::kBlocks)),
            "[One. Two three.]<1000>{b}[Four][five][six.]{c}");
}

TEST(MarkupSplitter, KeepsGapsOfHeadingsAndParagraphs) {
  const std::vector<MarkupPart> parts =
      Split("# Title\n\nOne. Two.\n\n* a\n* b\n", Markup::kMarkdown, MarkupUnits::kSentences);
  ASSERT_EQ(Describe(parts), "[Title][One.][Two.][a][b]");
  EXPECT_EQ(parts[1].before, SentenceGap::kHeading);
  EXPECT_EQ(parts[2].before, SentenceGap::kSentence);
  EXPECT_EQ(parts[3].before, SentenceGap::kParagraph);
  EXPECT_EQ(parts[4].before, SentenceGap::kSentence);
}

TEST(MarkupSplitter, MapsWordsToTheDocument) {
  const std::string text = "# *Big* title\n\nSee [the docs](http://x) now. Then **stop**.";
  for (const MarkupUnits units : {MarkupUnits::kSentences, MarkupUnits::kBlocks, MarkupUnits::kGrowing}) {
    for (const MarkupPart& part : Joined(Split(text, Markup::kMarkdown, units))) {
      TextMap map;
      map.Append(part.map);
      for (const char* const word : {"Big", "title", "the", "docs", "now", "Then", "stop"}) {
        const size_t at = part.text.find(word);
        if (at == std::string::npos) continue;
        const auto [begin, end] = map.SourceOf(at, at + std::string(word).size());
        EXPECT_EQ(CharactersOf(part.source, begin, end), word);
        EXPECT_EQ(CharactersOf(text, part.begin + begin, part.begin + end), word);
      }
    }
  }
}

TEST(MarkupSplitter, GrowsWithTheText) {
  MarkupSplitter splitter(OptionsOf(Markup::kMarkdown), MarkupUnits::kGrowing, English());
  const auto push = [&](const char* text) {
    EXPECT_TRUE(splitter.Append(text).ok());
    std::vector<MarkupPart> parts;
    TakeAll(&splitter, &parts);
    return Describe(parts);
  };
  EXPECT_EQ(push("Hello **wor"), "[Hello wor");
  EXPECT_FALSE(splitter.idle());
  EXPECT_EQ(push("ld**"), "ld");
  EXPECT_EQ(push("\n\n- it"), "][it");
  splitter.EndUtterance();
  EXPECT_EQ(push("em"), "][em");
  splitter.Finish();
  EXPECT_TRUE(splitter.Next().has_value());
  EXPECT_TRUE(splitter.idle());
}

TEST(MarkupSplitter, IsTheSameHoweverItIsCut) {
  std::mt19937 rng(4);
  const std::pair<const char*, Markup> files[] = {{"talk.ssml", Markup::kSsml},
                                                  {"readme.markdown", Markup::kMarkdown},
                                                  {"film.srt", Markup::kSubtitle},
                                                  {"talk.vtt", Markup::kSubtitle}};
  for (const auto& [file, markup] : files) {
    const std::string text = ReadTestFile(file);
    for (const MarkupUnits units : {MarkupUnits::kSentences, MarkupUnits::kBlocks, MarkupUnits::kGrowing}) {
      const std::vector<MarkupPart> whole = Joined(Split(text, markup, units));
      for (int i = 0; i < 20; ++i) {
        const std::vector<MarkupPart> cut = Joined(Split(text, markup, units, RandomCuts(&rng, text.size())));
        ASSERT_EQ(Describe(cut), Describe(whole)) << file;
        for (size_t k = 0; k < whole.size(); ++k) {
          ASSERT_EQ(cut[k].map, whole[k].map);
          ASSERT_EQ(cut[k].source, whole[k].source);
          ASSERT_EQ(cut[k].marks, whole[k].marks);
          ASSERT_EQ(cut[k].before, whole[k].before);
        }
      }
      for (const MarkupPart& part : whole) {
        // Nothing that looks like a tag is spoken.
        EXPECT_EQ(part.text.find("</"), std::string::npos) << part.text;
        EXPECT_EQ(part.text.find("**"), std::string::npos) << part.text;
        EXPECT_EQ(part.text.find("{\\"), std::string::npos) << part.text;
        if (part.kind == MarkupPart::Kind::kText) {
          EXPECT_EQ(CharactersOf(text, part.begin, part.begin + CountUtf8(part.source)), part.source);
        }
      }
    }
  }
}

}  // namespace
}  // namespace qtts
