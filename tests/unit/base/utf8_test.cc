// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/utf8.h"

#include <glib.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>

#include "unit/text/random_text.h"

namespace qtts {
namespace {

using std::string_literals::operator""s;

TEST(Utf8, EveryScalarValueComesBack) {
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    if (code == 0xD800) code = 0xE000;
    std::string text;
    AppendUtf8(code, &text);
    gchar expected[6];
    ASSERT_EQ(text, std::string(expected, static_cast<size_t>(g_unichar_to_utf8(code, expected))));
    const Utf8Char c = DecodeUtf8(text + "x");
    ASSERT_EQ(c.code, code);
    ASSERT_EQ(c.size, text.size());
    ASSERT_FALSE(c.incomplete);
    const Utf8Char last = DecodeLastUtf8("x" + text);
    ASSERT_EQ(last.code, code);
    ASSERT_EQ(last.size, text.size());
    ASSERT_EQ(CountUtf8("x" + text + text), 3U);
    ASSERT_EQ(Utf8Head(text + text, 1), text);
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const Utf8Char part = DecodeUtf8(std::string_view(text).substr(0, cut));
      ASSERT_EQ(part.code, kReplacementCharacter);
      ASSERT_EQ(part.size, cut);
      ASSERT_TRUE(part.incomplete);
    }
  }
}

TEST(Utf8, EndOfText) {
  EXPECT_EQ(DecodeLastUtf8("").size, 0U);
  EXPECT_EQ(Utf8Head("ab", 3), "ab");
  EXPECT_EQ(Utf8Head("ab", 0), "");
  EXPECT_EQ(DecodeUtf8("").size, 0U);
  EXPECT_FALSE(DecodeUtf8("").incomplete);
}

// Expected values: the Unicode standard's tables 3-8 to 3-11, and Python's bytes.decode(errors="replace").
TEST(Utf8, MaximalSubpartsOfInvalidBytes) {
  const std::string r = "\uFFFD";
  const struct {
    std::string bytes;
    std::string repaired;
  } cases[] = {
      {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", r + r + r + r + r + r + r + r + "A"},
      {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", r + r + r + r + r + r + r + r + "A"},
      {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", r + r + r + r + r + "A" + r + r + "B"},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", r + r + r + r + "A"},
      {"\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64", "a" + r + r + r + "b" + r + "c" + r + r + "d"},
      {"\xC2", r},
      {"\xF0\x9F\x98", r},
      {"\xF5\x80", r + r},
      {"\0a\xC2\0"s, "\0a"s + r + "\0"s},
  };
  for (const auto& c : cases) EXPECT_EQ(RepairUtf8(c.bytes), c.repaired);
}

TEST(Utf8, RepairKeepsValidTextAndAlwaysYieldsValidText) {
  std::mt19937 rng(1);  // seed 1
  for (int i = 0; i < 2000; ++i) {
    const std::string text = RandomText(&rng, 30);
    ASSERT_EQ(RepairUtf8(text), text);
    const std::string repaired = RepairUtf8(RandomBytes(&rng, 30));
    for (std::string_view rest = repaired; !rest.empty();) {
      const size_t nul = std::min(rest.find('\0'), rest.size());
      ASSERT_TRUE(g_utf8_validate_len(rest.data(), nul, nullptr));
      rest.remove_prefix(std::min(nul + 1, rest.size()));
    }
  }
}

TEST(Utf8, WhiteSpaceIsUnicodesProperty) {
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    const GUnicodeType type = g_unichar_type(code);
    const bool separator =
        type == G_UNICODE_SPACE_SEPARATOR || type == G_UNICODE_LINE_SEPARATOR || type == G_UNICODE_PARAGRAPH_SEPARATOR;
    EXPECT_EQ(IsWhiteSpace(code), separator || (code >= 9 && code <= 13) || code == 0x85)
        << static_cast<uint32_t>(code);
  }
}

TEST(IsBlank, WhiteSpaceOfUnicodeAndReplacementsOnly) {
  const char32_t white[] = {0x09,   0x0A,   0x0B,   0x0C,   0x0D,   0x20,   0x85,   0xA0,   0x1680,
                            0x2000, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005, 0x2006, 0x2007, 0x2008,
                            0x2009, 0x200A, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFFFD};
  std::string all;
  for (char32_t c = 1; c < 0x11000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    AppendUtf8(c, &text);
    const bool expected = std::find(std::begin(white), std::end(white), c) != std::end(white);
    EXPECT_EQ(IsBlank(text), expected) << std::hex << static_cast<uint32_t>(c);
    if (expected) all += text;
  }
  EXPECT_TRUE(IsBlank(""));
  EXPECT_TRUE(IsBlank(all));
  EXPECT_FALSE(IsBlank(all + "." + all));
}

TEST(Trim, RemovesAsciiSpaceAround) {
  EXPECT_EQ(Trim(" \t\r\n\v\fa b\n"), "a b");
  EXPECT_EQ(Trim("a"), "a");
  EXPECT_EQ(Trim(" \n"), "");
  EXPECT_EQ(Trim(""), "");
  EXPECT_EQ(Trim("\xC2\xA0 "), "\xC2\xA0");
}

}  // namespace
}  // namespace qtts
