// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_UNIT_TEXT_RANDOM_TEXT_H_
#define QTTS_TESTS_UNIT_TEXT_RANDOM_TEXT_H_

#include <array>
#include <cstddef>
#include <random>
#include <string>

#include "qtts/utf8.h"

namespace qtts {

// Text of up to `max_characters` of all classes that normalization and the patterns distinguish, mixed: letters of each
// case, marks that compose, are reordered or do neither, jamo, numbers, spaces, line ends, apostrophes, NUL, and
// sometimes any code point.
inline std::string RandomText(std::mt19937* rng, size_t max_characters) {
  static constexpr std::array<char32_t, 56> kAlphabet = {
      'a',   's',    't',   'r',   'e',   'v',   'l',   'd',   'm',    'A',    'S',    'Z',    'L',    ' ',
      ' ',   ' ',    '\n',  '\n',  '\r',  '\t',  '\'',  '\'',  '.',    '!',    '/',    '<',    '1',    '2',
      0,     0x85,   0xA0,  0xE9,  0xC9,  0x17F, 0x1C5, 0x2B0, 0x300,  0x301,  0x323,  0x327,  0x338,  0x345,
      0x3B1, 0x1F08, 0x5D0, 0x5B0, 0x9C7, 0x9BE, 0xE01, 0xE48, 0x1100, 0x1161, 0x11A8, 0x3000, 0x4E2D, 0xAC00};
  std::uniform_int_distribution<size_t> length(0, max_characters);
  std::uniform_int_distribution<size_t> pick(0, kAlphabet.size() - 1);
  std::uniform_int_distribution<char32_t> any(0, 0x10FFFF);
  std::uniform_int_distribution<int> rare(0, 19);
  std::string text;
  for (size_t left = length(*rng); left > 0; --left) {
    char32_t code = kAlphabet[pick(*rng)];
    if (rare(*rng) == 0) code = any(*rng);
    if (code >= 0xD800 && code <= 0xDFFF) code = kReplacementCharacter;
    AppendUtf8(code, &text);
  }
  return text;
}

// The same with some invalid bytes.
inline std::string RandomBytes(std::mt19937* rng, size_t max_characters) {
  std::string text = RandomText(rng, max_characters);
  std::uniform_int_distribution<int> byte(0, 255);
  std::uniform_int_distribution<int> action(0, 11);
  std::string out;
  for (const char c : text) {
    switch (action(*rng)) {
      case 0:
        break;  // lost
      case 1:
        out.push_back(static_cast<char>(byte(*rng)));
        out.push_back(c);
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

}  // namespace qtts

#endif  // QTTS_TESTS_UNIT_TEXT_RANDOM_TEXT_H_
