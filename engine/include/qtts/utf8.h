// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_UTF8_H_
#define QTTS_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>

// UTF-8, for the engine and for the element: nothing else decodes it.
namespace qtts {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;

// What stands at the front of a byte string.
struct Utf8Char {
  char32_t code = 0;        // U+FFFD for invalid bytes
  size_t size = 0;          // bytes it takes; 0 only at the end of the text
  bool incomplete = false;  // the text ends inside a sequence that more bytes could complete
};

// Reads one code point. Invalid input is taken in maximal subparts, as the Unicode standard
// recommends (section 3.9) and Python's errors="replace" does: one U+FFFD for each.
Utf8Char DecodeUtf8(std::string_view text);

// Reads the last code point of well-formed text; its size is 0 only where there is none.
Utf8Char DecodeLastUtf8(std::string_view text);

// Code points in well-formed text.
size_t CountUtf8(std::string_view text);

// The first `count` code points of well-formed text, or all of it.
std::string_view Utf8Head(std::string_view text, size_t count);

// Appends the UTF-8 form of a Unicode scalar value.
void AppendUtf8(char32_t code, std::string* out);

// Valid UTF-8: `text` with each maximal subpart of invalid bytes replaced by U+FFFD.
std::string RepairUtf8(std::string_view text);

// Unicode's White_Space property, the official tokenizer's \s.
bool IsWhiteSpace(char32_t code);

}  // namespace qtts

#endif  // QTTS_UTF8_H_
