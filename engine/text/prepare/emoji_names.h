// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_PREPARE_EMOJI_NAMES_H_
#define QTTS_TEXT_PREPARE_EMOJI_NAMES_H_

#include <cstddef>
#include <string>

#include "text/prepare/reader.h"

namespace qtts {

// Returns the length of the emoji at `position`, with its modifiers, what is joined to it, and its repetitions; 0 if
// there is none.
ptrdiff_t EmojiLength(const Reader& text, ptrdiff_t position);

// Returns its English name: CLDR's short name of the most frequent ones, else Unicode's name in small letters. Flags
// have the country's name.
std::string EmojiName(const Reader& text, ptrdiff_t position);

}  // namespace qtts

#endif  // QTTS_TEXT_PREPARE_EMOJI_NAMES_H_
