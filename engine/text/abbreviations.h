// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_ABBREVIATIONS_H_
#define QTTS_TEXT_ABBREVIATIONS_H_

#include <string_view>

namespace qtts {

// Whether a full stop after `word` (UTF-8, without the stop) is part of an abbreviation, so that it ends no
// sentence. `before_digit` tells whether a digit follows.
//
// One list for all languages of the model, without what is a common word in one of them. CLDR's lists of
// suppressed sentence breaks were tried: they lack "Dr.", "Jr." and most initials of English, and have "Is.",
// "To." and "All.".
bool IsAbbreviation(std::string_view word, bool before_digit);

}  // namespace qtts

#endif  // QTTS_TEXT_ABBREVIATIONS_H_
