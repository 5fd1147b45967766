// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_NORMALIZER_H_
#define QTTS_TEXT_NORMALIZER_H_

#include <string>
#include <string_view>

namespace qtts {

// Returns true if NFC neither composes `code` with an earlier character nor reorders the two. Text cut before such a
// character can be normalized in parts. May return false for a safe character.
bool StartsCluster(char32_t code);

// Returns the Unicode Normalization Form C of valid UTF-8, NUL characters included (spec 2). Takes linear time for any
// text.
std::string ToNfc(std::string_view text);

}  // namespace qtts

#endif  // QTTS_TEXT_NORMALIZER_H_
