// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_PREPARE_READER_H_
#define QTTS_TEXT_PREPARE_READER_H_

#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>

#include "text/prepare/mapped_text.h"

namespace qtts {

// Undecided text as a rule of a step sees it. Position 0 is the first undecided character; negative positions are the
// ones before it, as they were before this step.
//
// Notes whether a rule has looked beyond the text that is there. If it has not, no later text can change its result. If
// rules look at text through a Reader alone, the result does not depend on how text is cut.
class Reader {
 public:
  // Stands for the character before the first one and after the last one.
  static constexpr char32_t kNone = 0xFFFFFFFF;
  // Bounds of the positions that a rule can read. Characters beyond them are kNone.
  static constexpr ptrdiff_t kBehind = 80;
  static constexpr ptrdiff_t kAhead = 480;

  // `at`: index of position 0 in `text`. `ended`: no more text comes. `letter_comes`: text comes and begins with a
  // letter. `last_spoken`: the character that the step gave out last, or kNone.
  Reader(const MappedText& text, size_t at, bool ended, bool letter_comes, char32_t last_spoken)
      : text_(text), at_(at), ended_(ended), letter_comes_(letter_comes), last_spoken_(last_spoken) {}

  char32_t operator[](ptrdiff_t position) const {
    if (position < -kBehind || position >= kAhead) return kNone;
    const auto index = static_cast<ptrdiff_t>(at_) + position;
    if (index < 0) return kNone;
    if (static_cast<size_t>(index) < text_.size()) return text_[static_cast<size_t>(index)].code;
    needs_more_ = !ended_ || needs_more_;
    return kNone;
  }

  // Returns true if the text that is there ends at `position`, and the next character is certain to be a letter, though
  // not which one.
  bool LetterComes(ptrdiff_t position) const {
    return letter_comes_ && position < kAhead && static_cast<ptrdiff_t>(at_) + position == std::ssize(text_);
  }

  // Returns true if the text goes on with `literal` (UTF-8) at `position`. Compares the characters one by one up to the
  // first that differs.
  bool Has(ptrdiff_t position, std::string_view literal) const;
  // Returns the same regardless of case; `lower` is in lower case.
  bool HasLower(ptrdiff_t position, std::string_view lower) const;

  // Returns the number of ASCII digits from `position` on, at most `most`.
  ptrdiff_t Digits(ptrdiff_t position, ptrdiff_t most = kAhead) const;
  // Returns the number of letters and combining marks from `position` on, at most `most`.
  ptrdiff_t Letters(ptrdiff_t position, ptrdiff_t most = kAhead) const;
  // Returns the number of spaces (U+0020, U+00A0) from `position` on.
  ptrdiff_t Spaces(ptrdiff_t position) const;

  std::u32string Text(ptrdiff_t position, ptrdiff_t length) const;
  std::string Utf8(ptrdiff_t position, ptrdiff_t length) const { return ToUtf8(Text(position, length)); }
  // Returns the word before position 0, without the white space and an optional full stop between; empty if there is
  // none.
  std::u32string WordBefore(ptrdiff_t position = 0) const;

  char32_t last_spoken() const { return last_spoken_; }
  bool needs_more() const { return needs_more_; }

 private:
  const MappedText& text_;
  size_t at_;
  bool ended_;
  bool letter_comes_;
  char32_t last_spoken_;
  mutable bool needs_more_ = false;
};

// Classes of characters, all false for Reader::kNone:
bool IsDigit(char32_t c);   // ASCII
bool IsLetter(char32_t c);  // letters and combining marks
bool IsUpper(char32_t c);
bool IsLower(char32_t c);
// Returns true for letters of Chinese, Japanese and Korean.
bool IsCjk(char32_t c);
// Returns true for letters and digits of words that are separated by spaces: no word begins directly behind one.
bool IsJoined(char32_t c);
bool IsSpace(char32_t c);  // U+0020, U+00A0

char32_t ToLower(char32_t c);
std::u32string ToLower(std::u32string_view text);

}  // namespace qtts

#endif  // QTTS_TEXT_PREPARE_READER_H_
