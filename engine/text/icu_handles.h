// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_ICU_HANDLES_H_
#define QTTS_TEXT_ICU_HANDLES_H_

#include <unicode/ubrk.h>
#include <unicode/utext.h>

namespace qtts {

// Deleters of std::unique_ptr for ICU's handles.
struct CloseBreaks {
  void operator()(UBreakIterator* breaks) const { ubrk_close(breaks); }
};
struct CloseText {
  void operator()(UText* text) const { utext_close(text); }
};

}  // namespace qtts

#endif  // QTTS_TEXT_ICU_HANDLES_H_
