// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/prepare/lexicon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace qtts {
namespace {

using ::testing::HasSubstr;

constexpr char kPls[] =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
    "<lexicon version=\"1.0\" xmlns=\"http://www.w3.org/2005/01/pronunciation-lexicon\" alphabet=\"ipa\" "
    "xml:lang=\"en\">\n"
    "  <!-- a comment -->\n"
    "  <lexeme><grapheme>GIF</grapheme><grapheme>Gif</grapheme><alias>jif</alias></lexeme>\n"
    "  <lexeme><grapheme>W3C &amp; co</grapheme><alias>the consortium</alias></lexeme>\n"
    "  <lexeme><grapheme>both</grapheme><alias>first</alias><alias "
    "prefer=\"true\">second</alias><phoneme>b</phoneme></lexeme>\n"
    "</lexicon>\n";

class Files {
 public:
  Files() : path_(::testing::TempDir() + "qtts-lexicon-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) ADD_FAILURE() << path_;
  }
  ~Files() { std::filesystem::remove_all(path_); }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  std::string Write(const std::string& name, std::string_view content) {
    std::ofstream(path_ + "/" + name, std::ios::binary | std::ios::trunc) << content;
    return path_ + "/" + name;
  }

 private:
  std::string path_;
};

std::string Spoken(const std::string& written, std::string_view lexicon, const std::string& language = "en") {
  const auto entries = ParseLexicon(lexicon, "file");
  EXPECT_TRUE(entries.ok()) << entries.status().message();
  TextPreparerOptions options;
  options.language = language;
  options.lexicon = std::make_shared<const LexiconTree>(*entries);
  return PrepareText(written, options).spoken;
}

std::string Error(std::string_view lexicon) {
  const auto entries = ParseLexicon(lexicon, "file");
  EXPECT_FALSE(entries.ok());
  EXPECT_EQ(entries.status().code(), StatusCode::kInvalidArgument);
  return entries.status().message();
}

TEST(LexiconTest, PlsAliases) {
  EXPECT_EQ(Spoken("A GIF, a Gif and a gif.", kPls), "A jif, a jif and a gif.");
  EXPECT_EQ(Spoken("W3C & co met.", kPls), "the consortium met.");
  EXPECT_EQ(Spoken("both", kPls), "second") << "the preferred alias, although there are phonemes";
  EXPECT_EQ(Spoken("GIF", kPls, "de"), "GIF") << "the document is English";
  EXPECT_EQ(Spoken("GIF", kPls, "en-GB"), "jif");
}

TEST(LexiconTest, ColumnsWithALanguage) {
  constexpr char kColumns[] = "# names\nqttssrc\tQ T T S source\nChemie\tKemie\tde-AT\n\nempty\t\n";
  EXPECT_EQ(Spoken("Use qttssrc now.", kColumns), "Use Q T T S source now.");
  EXPECT_EQ(Spoken("Chemie", kColumns, "de"), "Chemie");
  EXPECT_EQ(Spoken("Chemie", kColumns, "de-AT"), "Kemie");
  EXPECT_EQ(Spoken("an empty cup", kColumns), "an  cup") << "silent";
}

TEST(LexiconTest, TheLongestEntryAtWordBoundariesWins) {
  constexpr char kColumns[] = "New York\tthe city\nNew York Times\tthe paper\nnew\told\ncat\tdog\n";
  EXPECT_EQ(Spoken("New York Times, New York, new York", kColumns), "the paper, the city, old York");
  EXPECT_EQ(Spoken("cat cats concat cat.", kColumns), "dog cats concat dog.");
  EXPECT_EQ(Spoken("New\nYork", kColumns), "the city") << "any white space is a space";
}

TEST(LexiconTest, SmallLettersStandForAnyCase) {
  constexpr char kColumns[] = "gif\tjif\nIT\tI T\nit\tthat\n";
  EXPECT_EQ(Spoken("gif Gif GIF", kColumns), "jif jif jif");
  EXPECT_EQ(Spoken("it IT It", kColumns), "that I T that");
}

TEST(LexiconTest, EntriesAheadWin) { EXPECT_EQ(Spoken("a", "a\tone\na\ttwo\n"), "one"); }

TEST(LexiconTest, LanguagesWithoutSpaces) {
  EXPECT_EQ(Spoken("我在重庆吃饭", "重庆\t崇庆\tzh\n", "zh"), "我在崇庆吃饭");
}

TEST(LexiconTest, WhatIsSpokenIsPreparedFurther) {
  const auto entries = ParseLexicon("PKG\tfor $5\n", "file");
  ASSERT_TRUE(entries.ok());
  TextPreparerOptions options;
  options.language = "en";
  options.steps = {true, true, true, true};
  options.lexicon = std::make_shared<const LexiconTree>(*entries);
  EXPECT_EQ(PrepareText("Buy PKG (now).", options).spoken, "Buy for five dollars, now.");
}

TEST(LexiconTest, PhonemesAreRefusedWithTheReason) {
  const std::string error = Error(
      "<lexicon version=\"1.0\" "
      "xml:lang=\"en\">\n<lexeme>\n<grapheme>tomato</grapheme><phoneme>təmeɪtoʊ</phoneme></lexeme></lexicon>");
  EXPECT_THAT(error, HasSubstr("file:3: "));
  EXPECT_THAT(error, HasSubstr("\"tomato\" has phonemes, and the model takes letters only; write <alias>"));
}

TEST(LexiconTest, BrokenFilesNameTheLine) {
  EXPECT_THAT(Error("one two\n"), HasSubstr("file:1: \"one two\" has no tab"));
  EXPECT_THAT(Error("a\tb\n\tc\n"), HasSubstr("file:2: an entry without a written form"));
  EXPECT_THAT(Error("a\tb\tC++\n"), HasSubstr("file:1: the language \"C++\""));
  EXPECT_THAT(Error(std::string(101, 'x') + "\ty\n"), HasSubstr("has more than 100 characters"));
  EXPECT_THAT(Error("x\t" + std::string(1001, 'y') + "\n"), HasSubstr("has more than 1000 characters"));
  EXPECT_THAT(Error("a\xFF\tb\n"), HasSubstr("no UTF-8"));
  EXPECT_THAT(Error("<lexicon><lexeme>"), HasSubstr("file: "));
  EXPECT_THAT(Error("<speak/>"), HasSubstr("the document is \"speak\", expected \"lexicon\""));
  EXPECT_THAT(Error("<lexicon><lexeme><alias>x</alias></lexeme></lexicon>"), HasSubstr("without a grapheme"));
  EXPECT_THAT(Error("<lexicon><lexeme><grapheme>x</grapheme></lexeme></lexicon>"), HasSubstr("\"x\" has no alias"));
  EXPECT_THAT(Error("<lexicon><a><a><a><a><a><a/></a></a></a></a></a></lexicon>"), HasSubstr("nested deeper than 6"));
}

TEST(LexiconTest, NoEntitiesAreDefined) {
  EXPECT_THAT(Error("<!DOCTYPE lexicon [<!ENTITY a SYSTEM \"/etc/passwd\">]><lexicon/>"),
              HasSubstr("document type declaration"));
  EXPECT_THAT(Error("<lexicon><lexeme><grapheme>&a;</grapheme></lexeme></lexicon>"), HasSubstr("file: "));
}

TEST(LexiconTest, FilesAreReadAgainWhenTheyChange) {
  Files files;
  const std::string first = files.Write("first", "a\tone\n");
  const std::string second = files.Write("second", "a\ttwo\nb\tbee\n");
  const auto loaded = Lexicon::Load(first + ":" + second);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ((*loaded)->size(), 3U);
  TextPreparerOptions options;
  options.language = "en";
  options.lexicon = *loaded;
  EXPECT_EQ(PrepareText("a b", options).spoken, "one bee");
  const auto again = Lexicon::Load(first + ":" + second);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, *loaded) << "unchanged files are not read again";
  files.Write("first", "a\tchanged, and longer\n");
  const auto changed = Lexicon::Load(first + ":" + second);
  ASSERT_TRUE(changed.ok());
  options.lexicon = *changed;
  EXPECT_EQ(PrepareText("a b", options).spoken, "changed, and longer bee");
}

TEST(LexiconTest, FilesThatCannotBeRead) {
  Files files;
  EXPECT_EQ(Lexicon::Load("").value(), nullptr);
  const auto missing = Lexicon::Load("/nowhere/lexicon");
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.status().message(), HasSubstr("/nowhere/lexicon"));
  const auto broken = Lexicon::Load(files.Write("broken", "no tab\n"));
  EXPECT_THAT(broken.status().message(), HasSubstr("broken:1: \"no tab\" has no tab"));
}

}  // namespace
}  // namespace qtts
