// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_BYTE_ALPHABET_H_
#define QTTS_TEXT_BYTE_ALPHABET_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace qtts {

// The alphabet of byte-level BPE vocabularies: a printable character for each byte. Printable
// Latin-1 stands for itself, the other bytes, in order, for U+0100, U+0101, ….

// UTF-8 of the character for `byte`; valid for ever.
std::string_view ByteLetter(uint8_t byte);

// `bytes` spelled in the alphabet.
std::string SpellBytes(std::string_view bytes);

// The bytes `spelling` stands for, appended to `bytes`. False when a character is not of the alphabet.
bool UnspellBytes(std::string_view spelling, std::string* bytes);

}  // namespace qtts

#endif  // QTTS_TEXT_BYTE_ALPHABET_H_
