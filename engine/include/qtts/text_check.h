// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_CHECK_H_
#define QTTS_TEXT_CHECK_H_

#include <string>
#include <string_view>
#include <vector>

// What can be said of a text before a model speaks it. All texts are well-formed UTF-8.
namespace qtts {

// Whether a text holds anything to say: a character that stands for a word or a part of one. Without any, a model has
// nothing to go by and babbles.
//
// Unicode's general categories decide, the same in every language: letters (L), numbers (N) and currency signs (Sc) are
// said. Marks (M) are so only on a letter, which is there then. Punctuation (P, "%" and "&" among it), the other
// symbols ("+", arrows, lines, stars, pictographs: Sm, Sk, So), separators and control, format and private-use
// characters (Z, C) are not. Unassigned characters (Cn) are: they may be letters of a newer Unicode than ICU's.
bool IsSayable(std::string_view text);

// A warning for the user that a model of `languages` (ModelInfo::languages) will most likely not speak a text
// intelligibly; empty if there is none:
//
// - At least half of its letters belong to scripts in which none of the languages is written, by CLDR.
// - It has at least 40 Latin letters, one of them outside the alphabets of all the languages, by CLDR, and its bytes
//   look like another of ICU's Latin-1 languages (Danish, Dutch, English, French, German, Italian, Norwegian,
//   Portuguese, Spanish, Swedish). Of text without such a letter too much would be taken for another language: of
//   English sentences 3 in 100.
//
// Nothing is said where the user has named a language (Request::language), nor of a model with a language of its own.
// Some microseconds for a text of the model's; any thread.
std::string LanguageWarning(std::string_view text, const std::vector<std::string>& languages,
                            std::string_view language);

}  // namespace qtts

#endif  // QTTS_TEXT_CHECK_H_
