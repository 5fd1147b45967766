// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/utf8.h"

#include <algorithm>
#include <cstdint>

namespace qtts {
namespace {

// Returns true for every byte of a character except its first.
bool IsTrail(char byte) { return (static_cast<uint8_t>(byte) & 0xC0U) == 0x80U; }

bool IsAsciiSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

Utf8Char DecodeUtf8(std::string_view text) {
  if (text.empty()) return {};
  const auto byte = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, false};
  // The lead byte determines the length and the valid range of the second byte. The range excludes overlong forms,
  // surrogates and code points above U+10FFFF.
  size_t length = 0;
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
  char32_t code = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
    code = lead & 0x1FU;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    code = lead & 0x0FU;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    code = lead & 0x07U;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {kReplacementCharacter, 1, false};
  }
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {kReplacementCharacter, i, true};
    if (byte(i) < low || byte(i) > high) return {kReplacementCharacter, i, false};
    code = code << 6U | (byte(i) & 0x3FU);
    low = 0x80;
    high = 0xBF;
  }
  return {code, length, false};
}

Utf8Char DecodeLastUtf8(std::string_view text) {
  size_t start = text.size();
  while (start > 0 && IsTrail(text[--start])) continue;
  return DecodeUtf8(text.substr(start));
}

size_t CountUtf8(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char byte) { return !IsTrail(byte); }));
}

std::string_view Utf8Head(std::string_view text, size_t count) {
  size_t i = 0;
  for (size_t characters = 0; i < text.size(); ++i) {
    if (IsTrail(text[i])) continue;
    if (characters++ == count) break;
  }
  return text.substr(0, i);
}

void AppendUtf8(char32_t code, std::string* out) {
  const auto put = [out](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0U | code >> 6U);
    put(0x80U | (code & 0x3FU));
  } else if (code < 0x10000) {
    put(0xE0U | code >> 12U);
    put(0x80U | (code >> 6U & 0x3FU));
    put(0x80U | (code & 0x3FU));
  } else {
    put(0xF0U | code >> 18U);
    put(0x80U | (code >> 12U & 0x3FU));
    put(0x80U | (code >> 6U & 0x3FU));
    put(0x80U | (code & 0x3FU));
  }
}

std::string RepairUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char c = DecodeUtf8(text);
    AppendUtf8(c.code, &out);
    text.remove_prefix(c.size);
  }
  return out;
}

bool IsWhiteSpace(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F ||
         code == 0x3000;
}

bool IsBlank(std::string_view text) {
  while (!text.empty()) {
    const Utf8Char c = DecodeUtf8(text);
    if (!IsWhiteSpace(c.code) && c.code != kReplacementCharacter) return false;
    text.remove_prefix(c.size);
  }
  return true;
}

std::string_view TrimLeft(std::string_view text) {
  const auto* begin = std::find_if_not(text.begin(), text.end(), IsAsciiSpace);
  return text.substr(static_cast<size_t>(begin - text.begin()));
}

std::string_view Trim(std::string_view text) {
  text = TrimLeft(text);
  const auto end = std::find_if_not(text.rbegin(), text.rend(), IsAsciiSpace).base();
  return text.substr(0, static_cast<size_t>(end - text.begin()));
}

}  // namespace qtts
