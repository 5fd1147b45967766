// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_UTF8_H_
#define QTTS_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>

// UTF-8 decoding of engine and element. No other code decodes UTF-8.
namespace qtts {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;

// The first character of a byte string.
struct Utf8Char {
  char32_t code = 0;        // U+FFFD for invalid bytes
  size_t size = 0;          // size in bytes; 0 only at the end of the text
  bool incomplete = false;  // the text ends inside a sequence that more bytes could complete
};

// Decodes one code point. Each maximal subpart of invalid bytes gives one U+FFFD, as the Unicode standard recommends
// (section 3.9) and Python's errors="replace" does.
Utf8Char DecodeUtf8(std::string_view text);

// Decodes the last code point of well-formed text. Its size is 0 only for empty text.
Utf8Char DecodeLastUtf8(std::string_view text);

// Returns the number of code points in well-formed text.
size_t CountUtf8(std::string_view text);

// Returns the first `count` code points of well-formed text, or all of it.
std::string_view Utf8Head(std::string_view text, size_t count);

// Appends the UTF-8 form of a Unicode scalar value.
void AppendUtf8(char32_t code, std::string* out);

// Replaces each maximal subpart of invalid bytes with U+FFFD.
std::string RepairUtf8(std::string_view text);

// Returns true for Unicode's White_Space property, which is the official tokenizer's \s.
bool IsWhiteSpace(char32_t code);

// Returns true if well-formed text holds nothing to speak: only white space and U+FFFD.
bool IsBlank(std::string_view text);

// Returns `text` without the ASCII white space around it.
std::string_view Trim(std::string_view text);
std::string_view TrimLeft(std::string_view text);

}  // namespace qtts

#endif  // QTTS_UTF8_H_
