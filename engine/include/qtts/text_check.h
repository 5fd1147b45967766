// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_CHECK_H_
#define QTTS_TEXT_CHECK_H_

#include <string>
#include <string_view>
#include <vector>

// Checks of a text before a model speaks it. All texts are well-formed UTF-8.
namespace qtts {

// Returns true if a text contains a character that is spoken. A model given a text without one babbles.
//
// Unicode's general categories decide, the same in every language. Spoken: letters (L), numbers (N), currency signs
// (Sc), and unassigned characters (Cn), which may be letters of a newer Unicode than ICU's. Not spoken: punctuation (P,
// including "%" and "&"), other symbols ("+", arrows, lines, stars, pictographs: Sm, Sk, So), separators, and control,
// format and private-use characters (Z, C). Marks (M) do not count; they are spoken only with a letter, which counts.
bool IsSayable(std::string_view text);

// Returns a warning that a model of `languages` (ModelInfo::languages) will most likely speak a text unintelligibly;
// empty if there is none. It is given in two cases:
//
// - At least half of the letters belong to scripts of none of the languages, by CLDR.
// - The text has at least 40 Latin letters, one of them outside the alphabets of all the languages, by CLDR, and ICU
//   detects another of its Latin-1 languages (Danish, Dutch, English, French, German, Italian, Norwegian, Portuguese,
//   Spanish, Swedish). The letter is required because detection alone errs too often: for 3 in 100 English sentences.
//
// No warning if the user has named a language (Request::language), or for a model with a language of its own. Takes a
// few microseconds for a text in the model's language. Any thread may call it.
std::string LanguageWarning(std::string_view text, const std::vector<std::string>& languages,
                            std::string_view language);

}  // namespace qtts

#endif  // QTTS_TEXT_CHECK_H_
