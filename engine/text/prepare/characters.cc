// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/prepare/characters.h"

#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <utility>

#include "text/prepare/html_names.h"

namespace qtts {
namespace {

constexpr char32_t kEscape = 0x1B;
constexpr char32_t kControlSequence = 0x9B;
constexpr char32_t kInvisibleHyphen = 0xAD;
constexpr char32_t kNoBreakSpace = 0xA0;
constexpr char32_t kZeroWidthJoiner = 0x200D;
constexpr char32_t kVariationSelectors[] = {0xFE0E, 0xFE0F, 0x20E3};  // the last one is a key's frame

bool IsCategory(char32_t c, uint32_t categories) {
  return c <= UCHAR_MAX_VALUE && (U_GET_GC_MASK(static_cast<UChar32>(c)) & categories) != 0;
}

bool IsNoncharacter(char32_t c) {
  constexpr char32_t kLastOfPlane = 0xFFFE;
  return (c >= 0xFDD0 && c <= 0xFDEF) || (c & kLastOfPlane) == kLastOfPlane;
}

// Returns true for control characters, for what stands for bytes that were no text, and for private characters.
bool IsBlank(char32_t c) {
  if (c == Reader::kNone) return false;
  if (c < 0x80) return c <= ' ' ? c != kEscape : c == 0x7F;
  return (IsWhiteSpace(c) || c == kReplacementCharacter ||
          IsCategory(c, U_GC_CC_MASK | U_GC_CO_MASK | U_GC_CS_MASK | U_GC_Z_MASK) || IsNoncharacter(c)) &&
         c != kControlSequence;
}

bool IsEmoji(char32_t c) {
  return c <= UCHAR_MAX_VALUE && c >= 0x80 && u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_EMOJI) != 0;
}

bool IsInvisible(const Reader& text, ptrdiff_t at) {
  const char32_t c = text[at];
  if (c < 0x80 || c == Reader::kNone) return false;
  if (c == kZeroWidthJoiner) {
    const char32_t before = text[at - 1];
    const bool after_emoji = IsEmoji(before) || before == kVariationSelectors[1];
    return !after_emoji || !IsEmoji(text[at + 1]);
  }
  return IsCategory(c, U_GC_CF_MASK) || std::ranges::find(kVariationSelectors, c) != std::end(kVariationSelectors);
}

bool IsNewLine(char32_t c) { return c == '\n' || c == '\r' || c == 0x85; }
bool IsParagraphEnd(char32_t c) { return c == '\f' || c == '\v' || c == 0x2028 || c == 0x2029; }
bool IsLineHyphen(char32_t c) { return c == '-' || c == 0x2010; }

// Returns the length of an escape sequence (ECMA-48) at position 0; 0 if there is none.
ptrdiff_t EscapeLength(const Reader& text) {
  ptrdiff_t i = text[0] == kEscape ? 2 : 1;
  const char32_t kind = text[0] == kEscape ? text[1] : U'[';
  if (kind == '[') {  // parameters, intermediate bytes, a final byte
    while (text[i] >= 0x20 && text[i] <= 0x3F) ++i;
    return text[i] >= 0x40 && text[i] <= 0x7E ? i + 1 : i;
  }
  if (kind == ']' || kind == 'P' || kind == '_' || kind == '^') {  // a string, ended by BEL or ESC \.
    constexpr ptrdiff_t kLongest = 300;
    for (; i < kLongest && text[i] != Reader::kNone && text[i] != '\n'; ++i) {
      if (text[i] == 0x07) return i + 1;
      if (text[i] == kEscape) return text[i + 1] == '\\' ? i + 2 : i;
    }
    return i;
  }
  if (kind >= 0x20 && kind <= 0x2F) return text[i] >= 0x30 && text[i] <= 0x7E ? i + 1 : i;
  return kind >= 0x30 && kind <= 0x7E ? i : 1;
}

// White space from position 0 on.
struct Blank {
  ptrdiff_t length = 0;
  int line_ends = 0;
  bool paragraph = false;
};

Blank ReadBlank(const Reader& text, ptrdiff_t at) {
  Blank blank;
  for (; IsBlank(text[at + blank.length]) || IsInvisible(text, at + blank.length); ++blank.length) {
    const char32_t c = text[at + blank.length];
    if (IsNewLine(c) && !(c == '\n' && text[at + blank.length - 1] == '\r')) ++blank.line_ends;
    blank.paragraph = blank.paragraph || IsParagraphEnd(c);
  }
  blank.paragraph = blank.paragraph || blank.line_ends > 1;
  return blank;
}

bool EndsSentence(char32_t c) {
  return std::u32string_view(U".!?:;,…。！？：；，、").find(c) != std::u32string_view::npos;
}

Edit ReplaceBlank(const Reader& text, bool keep_group_spaces) {
  const Blank blank = ReadBlank(text, 0);
  const char32_t last = text.last_spoken();
  const bool ends = text[blank.length] == Reader::kNone && blank.length < Reader::kAhead;
  if (last == ' ' || last == Reader::kNone || ends) return Remove(blank.length);
  if (blank.length == 1 && text[0] == ' ') return Copy();
  if (blank.paragraph && !EndsSentence(last)) return Replace(blank.length, U". ");
  const bool groups = keep_group_spaces && blank.length == 1 && IsDigit(text[-1]) && IsDigit(text[1]) &&
                      (text[0] == kNoBreakSpace || text[0] == 0x202F || text[0] == 0x2009 || text[0] == 0x2007);
  return {Edit::Kind::kReplace, static_cast<size_t>(blank.length), groups ? U"\u00A0" : U" "};
}

// Returns true for a word that begins at `at` and shows that the hyphen before the line end stands for a part left out.
bool BeginsWithConjunction(const Reader& text, ptrdiff_t at) {
  static constexpr std::string_view kWords[] = {"and", "or", "to", "und", "oder", "bis", "et",
                                                "ou",  "y",  "o",  "e",   "и",    "или"};
  return std::ranges::any_of(kWords, [&](std::string_view word) {
    return text.HasLower(at, word) && !IsLetter(text[at + static_cast<ptrdiff_t>(CountUtf8(word))]);
  });
}

// Returns true for prefixes that keep their hyphen.
bool IsPrefix(std::u32string_view word) {
  static constexpr std::u32string_view kPrefixes[] = {U"self", U"well", U"ex",   U"half", U"non",   U"all", U"high",
                                                      U"low",  U"long", U"full", U"ever", U"cross", U"so",  U"co"};
  return std::ranges::find(kPrefixes, word) != std::end(kPrefixes);
}

// Joins lines at a hyphen or soft hyphen before a line end.
std::optional<Edit> JoinLine(const Reader& text) {
  if (!IsLetter(text[-1]) || !(IsBlank(text[1]) || IsInvisible(text, 1))) return std::nullopt;
  const Blank blank = ReadBlank(text, 1);
  if (blank.line_ends != 1 || blank.paragraph) return std::nullopt;
  const ptrdiff_t next = 1 + blank.length;
  const bool soft = text[0] == kInvisibleHyphen;
  if (IsUpper(text[next]) || IsDigit(text[next])) return soft ? Remove(next) : Replace(next, U"-");
  if (!IsLetter(text[next])) return std::nullopt;
  if (!soft && BeginsWithConjunction(text, next)) return Replace(next, U"- ");
  if (!soft && IsPrefix(ToLower(text.WordBefore()))) return Replace(next, U"-");
  return Remove(next);
}

// Replaces HTML's character references that occur in plain text.
std::optional<Edit> ReplaceReference(const Reader& text) {
  for (const auto& [name, character] : kHtmlNames) {
    if (text.Has(1, name)) {
      return Replace(1 + static_cast<ptrdiff_t>(name.size()), std::u32string(character));
    }
  }
  if (text[1] != '#') return std::nullopt;
  const bool hexadecimal = text[2] == 'x' || text[2] == 'X';
  ptrdiff_t i = hexadecimal ? 3 : 2;
  const ptrdiff_t begin = i;
  char32_t code = 0;
  for (; i < begin + 6; ++i) {
    const char32_t c = ToLower(text[i]);
    const bool letter = hexadecimal && c >= 'a' && c <= 'f';
    if (!IsDigit(c) && !letter) break;
    code = code * (hexadecimal ? 16 : 10) + (letter ? c - 'a' + 10 : c - '0');
  }
  if (i == begin || text[i] != ';') return std::nullopt;
  const bool valid = code > ' ' && code <= UCHAR_MAX_VALUE && !U_IS_SURROGATE(code) && !IsBlank(code);
  return Replace(i + 1, std::u32string(1, valid ? code : U' '));
}

// Returns true for ranges of characters that are written as others in a special form.
bool IsCompatible(char32_t c) {
  static constexpr std::array<std::pair<char32_t, char32_t>, 8> kRanges = {{{0x2160, 0x217F},  // Roman numerals
                                                                            {0x2460, 0x2473},  // circled numbers
                                                                            {0x24B6, 0x24E9},  // circled letters
                                                                            {0xFB00, 0xFB06},  // ligatures
                                                                            {0xFF10, 0xFF19},  // full width
                                                                            {0xFF21, 0xFF3A},
                                                                            {0xFF41, 0xFF5A},
                                                                            {0x1D400, 0x1D7FF}}};  // mathematical
  return std::ranges::any_of(kRanges, [c](const auto& range) { return c >= range.first && c <= range.second; });
}

std::optional<Edit> ReplaceCompatible(char32_t c) {
  if (!IsCompatible(c)) return std::nullopt;
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* const normalizer = icu::Normalizer2::getNFKCInstance(error);
  if (U_FAILURE(error)) return std::nullopt;
  const icu::UnicodeString plain = normalizer->normalize(icu::UnicodeString(static_cast<UChar32>(c)), error);
  std::string text;
  plain.toUTF8String(text);
  if (U_FAILURE(error) || text.empty()) return std::nullopt;
  std::u32string codes = ToUtf32(text);
  if (codes.size() == 1) return Edit{Edit::Kind::kRewrite, 1, std::move(codes)};
  return Replace(1, std::move(codes));
}

}  // namespace

Edit CharactersStep::Next(const Reader& text) const {
  const char32_t c = text[0];
  if (IsLetter(c) && c < 0x250) return Copy();
  if (c == kEscape || c == kControlSequence) {
    const ptrdiff_t length = EscapeLength(text);
    return Remove(length);
  }
  if (IsLineHyphen(c) || c == kInvisibleHyphen) {
    if (auto edit = JoinLine(text)) return *std::move(edit);
  }
  if (IsInvisible(text, 0)) return Remove(1);
  if (IsBlank(c)) return ReplaceBlank(text, keep_group_spaces_);
  if (c == '&') return ReplaceReference(text).value_or(Copy());
  if (c == 0x2010 || c == 0x2011) return {Edit::Kind::kRewrite, 1, U"-"};
  return ReplaceCompatible(c).value_or(Copy());
}

}  // namespace qtts
