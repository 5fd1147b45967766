// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/word_finder.h"

#include <unicode/ubrk.h>
#include <unicode/uchar.h>
#include <unicode/utext.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "base/of_thread.h"
#include "qtts/text_check.h"
#include "qtts/utf8.h"
#include "text/icu_handles.h"

namespace qtts {
namespace {

// Returns true for white space, and for punctuation of scripts without white space.
bool EndsWord(char32_t code) {
  if (IsWhiteSpace(code)) return true;
  const bool wide = (code >= 0x3001 && code <= 0x303F) || (code >= 0xFF01 && code <= 0xFF65);
  return wide && u_ispunct(static_cast<UChar32>(code)) != 0;
}

// Returns true if the character belongs to the one before.
bool Extends(char32_t code) {
  switch (u_getIntPropertyValue(static_cast<UChar32>(code), UCHAR_WORD_BREAK)) {
    case U_WB_EXTEND:
    case U_WB_FORMAT:
    case U_WB_ZWJ:
      return true;
    default:
      return false;
  }
}

// One for each thread, since it takes time to open. Null if there was no memory for it.
struct WordBreaks {
  static std::unique_ptr<UBreakIterator, CloseBreaks> Open() {
    UErrorCode error = U_ZERO_ERROR;
    return std::unique_ptr<UBreakIterator, CloseBreaks>(ubrk_open(UBRK_WORD, "", nullptr, 0, &error));
  }
  const std::unique_ptr<UBreakIterator, CloseBreaks> breaks = Open();
};

}  // namespace

void WordFinder::Append(std::string_view text) {
  pending_ += text;
  size_t cut = 0;
  while (scanned_ < pending_.size()) {
    const Utf8Char c = DecodeUtf8(std::string_view(pending_).substr(scanned_));
    if (c.incomplete) break;
    const bool extends = Extends(c.code);
    if (after_ && !extends) cut = scanned_;
    if (scanned_ - cut >= kMaxPending) {
      Segment(scanned_);
      cut = 0;
    }
    after_ = extends ? after_ : EndsWord(c.code);
    scanned_ += c.size;
  }
  if (cut > 0) Segment(cut);
}

void WordFinder::Finish() {
  if (!pending_.empty()) Segment(pending_.size());
}

std::vector<TextRange> WordFinder::Take() { return std::exchange(words_, {}); }

// Finds the words of the first `bytes` pending bytes.
void WordFinder::Segment(size_t bytes) {
  const std::string_view text = std::string_view(pending_).substr(0, bytes);
  UErrorCode error = U_ZERO_ERROR;
  UBreakIterator* const breaks = OfThread<WordBreaks>().breaks.get();
  const std::unique_ptr<UText, CloseText> opened(
      utext_openUTF8(nullptr, text.data(), static_cast<int64_t>(text.size()), &error));
  if (breaks != nullptr) ubrk_setUText(breaks, opened.get(), &error);
  if (breaks != nullptr && U_SUCCESS(error)) {
    int32_t begin = ubrk_first(breaks);
    for (int32_t end = ubrk_next(breaks); end != UBRK_DONE; begin = end, end = ubrk_next(breaks)) {
      const auto from = static_cast<size_t>(begin);
      const auto to = static_cast<size_t>(end);
      const bool word = ubrk_getRuleStatus(breaks) >= UBRK_WORD_NONE_LIMIT;
      if (word || IsSayable(text.substr(from, to - from))) words_.push_back({segmented_ + from, segmented_ + to});
    }
  }
  pending_.erase(0, bytes);
  segmented_ += bytes;
  scanned_ = scanned_ > bytes ? scanned_ - bytes : 0;
}

}  // namespace qtts
