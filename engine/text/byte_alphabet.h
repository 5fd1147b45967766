// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_BYTE_ALPHABET_H_
#define QTTS_TEXT_BYTE_ALPHABET_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace qtts {

// The alphabet of byte-level BPE vocabularies: one printable character per byte. Printable Latin-1 characters stand for
// themselves; the other bytes, in order, for U+0100, U+0101, ….

// Returns the UTF-8 of the character for `byte`. Static storage.
std::string_view ByteLetter(uint8_t byte);

// Returns `bytes` spelled in the alphabet.
std::string SpellBytes(std::string_view bytes);

// Appends the bytes that `spelling` stands for to `bytes`. Returns false for a character outside the alphabet.
bool UnspellBytes(std::string_view spelling, std::string* bytes);

}  // namespace qtts

#endif  // QTTS_TEXT_BYTE_ALPHABET_H_
