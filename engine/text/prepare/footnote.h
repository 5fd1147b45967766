// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_PREPARE_FOOTNOTE_H_
#define QTTS_TEXT_PREPARE_FOOTNOTE_H_

#include <cstddef>

#include "text/prepare/reader.h"

namespace qtts {

// Returns the length of footnote marks such as "[12]" at `at`, directly behind a word or its punctuation; 0 if there
// are none.
inline ptrdiff_t FootnoteLength(const Reader& text, ptrdiff_t at) {
  if (text[at] != '[') return 0;
  const char32_t before = text[at - 1];
  if (before == Reader::kNone || IsSpace(before)) return 0;
  ptrdiff_t end = at;
  while (text[end] == '[') {
    constexpr ptrdiff_t kMaxMarkDigits = 3;
    const ptrdiff_t digits = text.Digits(end + 1, kMaxMarkDigits);
    if (digits == 0 || text[end + 1 + digits] != ']') break;
    end += digits + 2;
  }
  return end - at;
}

}  // namespace qtts

#endif  // QTTS_TEXT_PREPARE_FOOTNOTE_H_
