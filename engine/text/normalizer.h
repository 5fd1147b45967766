// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_NORMALIZER_H_
#define QTTS_TEXT_NORMALIZER_H_

#include <string>
#include <string_view>

namespace qtts {

// Whether NFC keeps `code` apart from whatever stands before it: it neither composes with an
// earlier character nor is reordered with one. Text cut before such a character can be normalized
// in parts. Says no for some characters that would be safe.
bool StartsCluster(char32_t code);

// Unicode Normalization Form C of valid UTF-8, NUL characters included (spec 2). Takes time linear
// in the length, whatever the text.
std::string ToNfc(std::string_view text);

}  // namespace qtts

#endif  // QTTS_TEXT_NORMALIZER_H_
