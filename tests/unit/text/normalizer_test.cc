// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/normalizer.h"

#include <glib.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <string_view>

#include "qtts/utf8.h"
#include "unit/text/random_text.h"

namespace qtts {
namespace {

using std::string_literals::operator""s;

// NFC of the whole text, which is slow for long text; `text` has no NUL.
std::string WholeNfc(const std::string& text) {
  const std::unique_ptr<gchar, decltype(&g_free)> nfc(
      g_utf8_normalize(text.data(), static_cast<gssize>(text.size()), G_NORMALIZE_NFC), g_free);
  return nfc.get();
}

std::string WithoutNul(std::string text) {
  std::erase(text, '\0');
  return text;
}

std::string Repeat(std::string_view unit, size_t times) {
  std::string out;
  while (times-- > 0) out += unit;
  return out;
}

TEST(Normalizer, ComposesAndReorders) {
  EXPECT_EQ(ToNfc(""), "");
  EXPECT_EQ(ToNfc("abc"), "abc");
  EXPECT_EQ(ToNfc("e\u0301"), "\u00E9");
  EXPECT_EQ(ToNfc("\u212B\u2126"), "\u00C5\u03A9");
  EXPECT_EQ(ToNfc("s\u0307\u0323"), "\u1E69");
  EXPECT_EQ(ToNfc("\u1100\u1161\u11A8"), "\uAC01");
  EXPECT_EQ(ToNfc("\uFB01\u00BD"), "\uFB01\u00BD");  // not the compatibility form
}

TEST(Normalizer, NulIsACharacter) {
  EXPECT_EQ(ToNfc("\0"s), "\0"s);
  EXPECT_EQ(ToNfc("e\u0301\0e\u0301\0\0\u0301x"s), "\u00E9\0\u00E9\0\0\u0301x"s);
}

TEST(Normalizer, BlocksGiveTheSameAsTheWhole) {
  std::mt19937 rng(2);  // seed 2
  for (int i = 0; i < 600; ++i) {
    const std::string text = WithoutNul(RandomText(&rng, 1000));
    ASSERT_EQ(ToNfc(text), WholeNfc(text));
  }
}

TEST(Normalizer, LongClustersGiveTheSameAsTheWhole) {
  std::mt19937 rng(3);  // seed 3
  const std::string marks[] = {"\u0301", "\u0323", "\u0327", "\u0345", "\u0344", "\u0F73", "\u0F71",
                               "\u0F72", "\u09C7", "\u09BE", "\u1161", "\u11A8", "\u302E", "\U0001D165"};
  std::uniform_int_distribution<size_t> pick(0, std::size(marks) - 1);
  for (int i = 0; i < 200; ++i) {
    std::string text = i % 2 == 0 ? "a" : "\u1100";
    for (int j = 0; j < 400; ++j) text += marks[pick(rng)];
    ASSERT_EQ(ToNfc(text + "z"), WholeNfc(text + "z"));
  }
}

// Quadratic time would make this run for minutes.
TEST(Normalizer, HostileRunsEnd) {
  for (const char* unit : {"\u0301\u0316", "\u0F73", "e\u0301", "\u09C7\u09BE", "\u1100\u1161", "\u0344"}) {
    const std::string text = Repeat(unit, 30000);
    EXPECT_EQ(ToNfc(ToNfc(text)), ToNfc(text));
  }
}

// Cutting text at clusters depends on these properties of every code point that GLib knows.
TEST(Normalizer, ClusterStartsNeitherComposeNorMove) {
  for (gunichar code = 0; code <= 0x10FFFF; ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    gunichar parts[G_UNICHAR_MAX_DECOMPOSITION_LENGTH];
    const gsize count = g_unichar_fully_decompose(code, FALSE, parts, G_UNICHAR_MAX_DECOMPOSITION_LENGTH);
    // Normalization keeps the number of cluster starts.
    ASSERT_EQ(StartsCluster(code), StartsCluster(parts[0])) << std::hex << code;
    for (gsize i = 1; i < count; ++i) ASSERT_FALSE(StartsCluster(parts[i])) << std::hex << code;
    if (StartsCluster(code)) {
      ASSERT_EQ(g_unichar_combining_class(code), 0) << std::hex << code;
    }
    // A character that composes with one before it starts no cluster.
    gunichar first = 0;
    gunichar second = 0;
    if (g_unichar_decompose(code, &first, &second) && second != 0) {
      ASSERT_FALSE(StartsCluster(second)) << std::hex << code;
    }
  }
}

// A pre-token before a cluster can be decided while marks may still change the cluster, because a character and its
// compositions are of one class for the patterns.
TEST(Normalizer, CompositionKeepsTheKindOfACharacter) {
  const auto kind = [](gunichar code) -> int {
    if (g_unichar_ismark(code)) return 1;
    switch (g_unichar_type(code)) {
      case G_UNICODE_LOWERCASE_LETTER:
        return 2;
      case G_UNICODE_UPPERCASE_LETTER:
      case G_UNICODE_TITLECASE_LETTER:
        return 3;
      case G_UNICODE_MODIFIER_LETTER:
      case G_UNICODE_OTHER_LETTER:
        return 4;
      case G_UNICODE_DECIMAL_NUMBER:
      case G_UNICODE_LETTER_NUMBER:
      case G_UNICODE_OTHER_NUMBER:
        return 5;
      default:
        return IsWhiteSpace(code) ? 6 : 7;
    }
  };
  for (gunichar code = 0x80; code <= 0x10FFFF; ++code) {
    gunichar first = 0;
    gunichar second = 0;
    if (!g_unichar_decompose(code, &first, &second) || second == 0) continue;
    EXPECT_EQ(kind(code), kind(first)) << std::hex << code;
  }
}

}  // namespace
}  // namespace qtts
