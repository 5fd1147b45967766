// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_MARKUP_REFERENCE_H_
#define QTTS_TEXT_MARKUP_REFERENCE_H_

#include <cstddef>
#include <optional>
#include <string_view>

namespace qtts {

// Longest name of a reference, without "&" and ";".
inline constexpr size_t kLongestReference = 32;

// Returns true if "&" and `name`, without the ";", may become a reference.
bool MayBeReference(std::u32string_view name);

// Returns the character that "&name;" stands for, of XML or HTML. U+FFFD for a number that is no character; nothing if
// there is no such name.
std::optional<char32_t> DecodeReference(std::u32string_view name);

}  // namespace qtts

#endif  // QTTS_TEXT_MARKUP_REFERENCE_H_
