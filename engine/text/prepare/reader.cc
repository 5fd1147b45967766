// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/prepare/reader.h"

#include <unicode/uchar.h>
#include <unicode/uscript.h>

namespace qtts {
namespace {

constexpr ptrdiff_t kMaxWordLength = 40;

bool IsAny(char32_t c, uint32_t categories) {
  return c <= UCHAR_MAX_VALUE && (U_GET_GC_MASK(static_cast<UChar32>(c)) & categories) != 0;
}

}  // namespace

bool Reader::Has(ptrdiff_t position, std::string_view literal) const {
  for (Utf8Char c = DecodeUtf8(literal); c.size > 0; c = DecodeUtf8(literal), ++position) {
    if ((*this)[position] != c.code) return false;
    literal.remove_prefix(c.size);
  }
  return true;
}

bool Reader::HasLower(ptrdiff_t position, std::string_view lower) const {
  for (Utf8Char c = DecodeUtf8(lower); c.size > 0; c = DecodeUtf8(lower), ++position) {
    if (ToLower((*this)[position]) != c.code) return false;
    lower.remove_prefix(c.size);
  }
  return true;
}

ptrdiff_t Reader::Digits(ptrdiff_t position, ptrdiff_t most) const {
  ptrdiff_t count = 0;
  while (count < most && IsDigit((*this)[position + count])) ++count;
  return count;
}

ptrdiff_t Reader::Letters(ptrdiff_t position, ptrdiff_t most) const {
  ptrdiff_t count = 0;
  while (count < most && IsLetter((*this)[position + count])) ++count;
  return count;
}

ptrdiff_t Reader::Spaces(ptrdiff_t position) const {
  ptrdiff_t count = 0;
  while (IsSpace((*this)[position + count])) ++count;
  return count;
}

std::u32string Reader::Text(ptrdiff_t position, ptrdiff_t length) const {
  std::u32string text;
  for (ptrdiff_t i = 0; i < length; ++i) text += (*this)[position + i];
  return text;
}

std::u32string Reader::WordBefore(ptrdiff_t position) const {
  ptrdiff_t end = position;
  while (IsSpace((*this)[end - 1])) --end;
  if ((*this)[end - 1] == '.') --end;
  ptrdiff_t begin = end;
  while (end - begin < kMaxWordLength && IsLetter((*this)[begin - 1])) --begin;
  return Text(begin, end - begin);
}

bool IsDigit(char32_t c) { return c >= '0' && c <= '9'; }

bool IsLetter(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return IsAny(c, U_GC_L_MASK | U_GC_MN_MASK | U_GC_MC_MASK);
}

bool IsUpper(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z';
  return IsAny(c, U_GC_LU_MASK | U_GC_LT_MASK);
}

bool IsLower(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  return IsAny(c, U_GC_LL_MASK);
}

bool IsCjk(char32_t c) {
  constexpr char32_t kFirst = 0x1100;
  if (c < kFirst || !IsLetter(c)) return false;
  UErrorCode error = U_ZERO_ERROR;
  switch (uscript_getScript(static_cast<UChar32>(c), &error)) {
    case USCRIPT_HAN:
    case USCRIPT_HIRAGANA:
    case USCRIPT_KATAKANA:
    case USCRIPT_HANGUL:
      return true;
    default:
      return false;
  }
}

bool IsJoined(char32_t c) { return IsDigit(c) || (IsLetter(c) && !IsCjk(c)); }

bool IsSpace(char32_t c) { return c == ' ' || c == 0xA0; }

char32_t ToLower(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
  return c <= UCHAR_MAX_VALUE ? static_cast<char32_t>(u_tolower(static_cast<UChar32>(c))) : c;
}

std::u32string ToLower(std::u32string_view text) {
  std::u32string lower(text);
  for (char32_t& c : lower) c = ToLower(c);
  return lower;
}

}  // namespace qtts
