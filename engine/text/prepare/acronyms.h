// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_PREPARE_ACRONYMS_H_
#define QTTS_TEXT_PREPARE_ACRONYMS_H_

#include <string_view>

namespace qtts {

// All take ASCII words in capital letters.

// Returns true for acronyms whose letters are spoken: "FBI".
bool IsSpelledAcronym(std::string_view word);
// Returns true for acronyms that are spoken as words: "NATO".
bool IsSpokenAcronym(std::string_view word);
// Returns true for those of them that stay as they are written, as in the training of the bundled voice: "JSON". Others
// are heard more often right in small letters.
bool IsKeptAcronym(std::string_view word);
// Returns true for common English words of two or three letters.
bool IsShortWord(std::string_view word);
// Returns true if a word of four letters or more looks pronounceable in English: it has vowels, and its consonants
// begin, join and end syllables as those of English words do.
bool IsPronounceable(std::string_view word);

}  // namespace qtts

#endif  // QTTS_TEXT_PREPARE_ACRONYMS_H_
