// SPDX-License-Identifier: LGPL-2.1-or-later
#include <gtest/gtest.h>

#include <iterator>
#include <random>
#include <string>
#include <utility>

#include "qtts/markup.h"
#include "unit/text/markup_documents.h"

namespace qtts {
namespace {

MarkupOptions Rules(const std::string& rules) {
  MarkupOptions options = OptionsOf(Markup::kMarkdown);
  const auto parsed = ParseMarkdownRules(rules);
  EXPECT_TRUE(parsed.ok()) << rules;
  if (parsed.ok()) options.rules = *parsed;
  return options;
}

std::string Growing(std::string_view text, const std::string& rules = "") {
  return ReadGrowing(text, Rules(rules)).text;
}

std::string Whole(std::string_view text, const std::string& rules = "") {
  ReadDocument document;
  Add(ReadMarkup(text, Rules(rules), &document.warnings), &document);
  return document.text;
}

struct Row {
  const char* written;
  const char* spoken;
};

// Both readers, as md4c has it.
TEST(Markdown, SpeaksTextWithoutItsMarks) {
  static constexpr Row kRows[] = {
      {"A **bold** and *thin* and __bold__ _thin_ word.", "A bold and thin and bold thin word.|"},
      {"***both*** and ~~gone~~", "both and gone|"},
      {"snake_case_name and 2 * 3 and 5 \\* 6", "snake_case_name and 2 * 3 and 5 * 6|"},
      {"Use `a*b*c` and ``x ` y``.", "Use a*b*c and x ` y.|"},
      {"See [the *docs*](https://example.com/a_(b) \"T\"), [1].", "See the docs, [1].|"},
      {"<https://example.com> and <max@example.com>", "https://example.com and max@example.com|"},
      {"one<br>two <b>three</b> <!-- no -->four", "one two three four|"},
      {"AT&amp;T &copy; &#65; &unknown;", "AT&T © A &unknown;|"},
      {"# Heading\nText\n\nMore", "Heading|Text|More|"},
      {"## Heading ##\nText", "Heading|Text|"},
      {"Heading\n===\nText", "Heading|Text|"},
      {"Heading\n---\nText", "Heading|Text|"},
      {"one\n\n---\n\ntwo", "one|two|"},
      {"* one\n* two\n- three", "one|two|three|"},
      {"1. one\n2. two", "1. one|2. two|"},
      {"3) one\n4) two", "3. one|4. two|"},
      {"- [ ] open\n- [x] done", "open|done|"},
      {"> quoted\n> text", "quoted\ntext|"},
      {"line one\nline two  \nline three\\\nfour", "line one\nline two\nline three\nfour|"},
      {"a\n\n```py\nx = 1\n```\n\nb", "a|b|"},
      {"~~~\nx\n~~~\nb", "b|"},
      {"a\n\n    indented\n\nb", "a|b|"},
      {"| a | b |\n|---|---|\n| 1 | 2 |\n\nend", "end|"},
      {"<div>\nx\n</div>\n\ntext", "text|"},
      {"<!-- a\n\nb -->\ntext", "text|"},
      {"<script>\n\nx\n</script>\ntext", "text|"},
      {"![logo](x.png) text [![badge](b.svg)](http://x)", "text|"},
      {"[ref]: http://example.com \"T\"\n\ntext", "text|"},
      {"#hashtag is text", "#hashtag is text|"},
      {"Price: $5 #1 a|b", "Price: $5 #1 a|b|"},
      {"1986\nand 3.5", "1986\nand 3.5|"},
  };
  for (const Row& row : kRows) {
    EXPECT_EQ(Whole(row.written), row.spoken) << row.written;
    EXPECT_EQ(Growing(row.written), row.spoken) << row.written;
  }
}

TEST(Markdown, FollowsTheRules) {
  static constexpr struct {
    const char* rules;
    const char* written;
    const char* spoken;
  } kRows[] = {
      {"code=name", "a\n\n```\nx\n```\nb", "a|Code example.|b|"},
      {"code=read", "a\n\n```\nx = 1\ny\n```\nb", "a|x = 1|y|b|"},
      {"table=name", "| a | b |\n|---|---|\n| 1 | 2 |\n\nc", "Table.|c|"},
      {"table=read", "| *a* | b |\n|:--|--:|\n| 1 | 2 |\n\nc", "a, b|1, 2|c|"},
      {"image=read", "![a *logo*](x.png)", "a logo|"},
      {"image=name", "![a logo](x.png)", "Image: a logo|"},
      {"link=read", "[docs](http://x.org/a) now", "docs, http://x.org/a now|"},
      {"link=name", "[docs](http://x.org/a) now", "docs, link now|"},
      {"html=read", "<div>one <b>two</b></div>\n\nthree", "one two|three|"},
  };
  for (const auto& row : kRows) {
    std::string growing = Growing(row.written, row.rules);
    std::string whole = Whole(row.written, row.rules);
    // md4c's lines of code are lines of one block.
    if (whole == "a|x = 1\ny|b|") whole = "a|x = 1|y|b|";
    EXPECT_EQ(growing, row.spoken) << row.written;
    EXPECT_EQ(whole, row.spoken) << row.written;
  }
}

TEST(Markdown, RefusesUnknownRules) {
  for (const char* const rules : {"codes=read", "code", "code=maybe", "html=name", "=read"}) {
    const auto parsed = ParseMarkdownRules(rules);
    ASSERT_FALSE(parsed.ok()) << rules;
    EXPECT_NE(parsed.status().message().find("a rule is code, table, image, link or html"), std::string::npos);
  }
  EXPECT_EQ(*ParseMarkdownRules(" code = read , table=name,"),
            (MarkdownRules{.code = MarkupRule::kRead, .table = MarkupRule::kName}));
}

TEST(Markdown, ReadsAReadme) {
  const std::string text = ReadTestFile("readme.markdown");
  const std::string spoken =
      "The fast parser|A small library that reads config.toml files, see the\ndocumentation or "
      "https://example.com.|Install|1. Open a terminal|2. Type the following:|Fast & safe|No bugs surprises|nested "
      "item|done|Quoted words are read.|Costs 5 * 3 = 15 *stars* and snake_case_names stay.|Setext heading|The end.|";
  const std::string growing = Growing(text);
  EXPECT_EQ(growing, spoken + "A note.|");
  EXPECT_EQ(Whole(text).substr(0, 60), spoken.substr(0, 60));
}

// Only a parser of the whole document sees that a star has no partner, and that a link is defined at the end.
TEST(Markdown, AWholeDocumentHasMarksWithoutPartners) {
  EXPECT_EQ(Whole("a *star and [ref]\n\n[ref]: http://x"), "a *star and ref|");
  EXPECT_EQ(Growing("a *star and [ref]\n\n[ref]: http://x"), "a star and [ref]|");
}

TEST(Markdown, GivesTextOutAsItComes) {
  MarkupReader reader(OptionsOf(Markup::kMarkdown));
  std::string given;
  const auto push = [&](const char* text) {
    EXPECT_TRUE(reader.Append(text).ok());
    for (const MarkupItem& item : reader.Take()) given += item.text;
    return given;
  };
  EXPECT_EQ(push("Hello *"), "Hello");
  EXPECT_EQ(push("*wor"), "Hello wor");
  EXPECT_EQ(push("ld** and [a li"), "Hello world and");
  EXPECT_EQ(push("nk](http"), "Hello world and");
  EXPECT_EQ(push("://x) end"), "Hello world and a link end");
}

TEST(Markdown, IsTheSameHoweverItIsCut) {
  std::mt19937 rng(2);
  for (const char* const rules : {"", "code=read,table=read,image=name,link=read,html=read", "code=name,table=name"}) {
    CheckDocument(ReadTestFile("readme.markdown"), Rules(rules), &rng, 20);
  }
  static constexpr const char* kPieces[] = {
      "*",     "**",     "_",     "`",    "```",   "~~~", "\n",   "\n\n",     "# ", "- ", "1. ",   "> ",
      "|",     "---",    "===",   "[",    "](",    ")",   "]",    "![",       "<",  ">",  "<div>", "<!--",
      "-->",   "\\",     "&amp;", "&",    "word ", "a",   " ",    "    ",     "9",  "[^", "]: ",   "~~",
      "<pre>", "</pre>", "é",     "\r\n", "+ ",    ": ",  "[ ] ", "http://x", "\"", "#",  "_x_"};
  std::uniform_int_distribution<size_t> pick(0, std::size(kPieces) - 1);
  std::uniform_int_distribution<int> count(0, 30);
  for (int i = 0; i < 4000; ++i) {
    std::string text;
    for (int k = count(rng); k > 0; --k) text += kPieces[pick(rng)];
    const MarkupOptions options = Rules(i % 2 == 0 ? "" : "code=read,table=read,image=read,link=read,html=read");
    ASSERT_NO_FATAL_FAILURE(CheckDocument(text, options, &rng, 2));
    ReadDocument whole;
    Add(ReadMarkup(text, options, &whole.warnings), &whole);
    ASSERT_EQ(RepairUtf8(whole.plain), whole.plain);
  }
}

}  // namespace
}  // namespace qtts
