// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_CHECK_H_
#define QTTS_TEXT_CHECK_H_

#include <string_view>

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

}  // namespace qtts

#endif  // QTTS_TEXT_CHECK_H_
