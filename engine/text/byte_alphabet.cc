// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/byte_alphabet.h"

#include <array>
#include <cstddef>

#include "qtts/utf8.h"

namespace qtts {
namespace {

constexpr char32_t kFirstStandIn = 0x100;
constexpr char32_t kLettersEnd = kFirstStandIn + 256;  // first code point after the alphabet

struct Alphabet {
  std::array<std::string, 256> letters;
  std::array<int16_t, kLettersEnd> bytes{};  // by code point; -1: not a letter

  Alphabet() {
    bytes.fill(-1);
    char32_t stand_in = kFirstStandIn;
    for (size_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      const char32_t code = printable ? static_cast<char32_t>(byte) : stand_in++;
      AppendUtf8(code, &letters[byte]);
      bytes[code] = static_cast<int16_t>(byte);
    }
  }
};

const Alphabet& GetAlphabet() {
  static const Alphabet alphabet;
  return alphabet;
}

}  // namespace

std::string_view ByteLetter(uint8_t byte) { return GetAlphabet().letters[byte]; }

std::string SpellBytes(std::string_view bytes) {
  std::string spelling;
  spelling.reserve(2 * bytes.size());
  for (const char byte : bytes) spelling += ByteLetter(static_cast<uint8_t>(byte));
  return spelling;
}

bool UnspellBytes(std::string_view spelling, std::string* bytes) {
  const Alphabet& alphabet = GetAlphabet();
  while (!spelling.empty()) {
    const Utf8Char c = DecodeUtf8(spelling);
    if (c.code >= kLettersEnd || alphabet.bytes[c.code] < 0) return false;
    bytes->push_back(static_cast<char>(alphabet.bytes[c.code]));
    spelling.remove_prefix(c.size);
  }
  return true;
}

}  // namespace qtts
