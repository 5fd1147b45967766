// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_WORD_FINDER_H_
#define QTTS_TEXT_WORD_FINDER_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "qtts/words.h"

namespace qtts {

// Finds the words of a text that comes in pieces, by the rules of UAX #29 with ICU's dictionaries. Only words with
// something to say count (IsSayable()). A word is returned as soon as a white space or an ideographic mark behind it
// and the character after that are known, so the result does not depend on how the text is cut. Not thread-safe.
class WordFinder {
 public:
  // Text without such a place is cut after this many bytes.
  static constexpr size_t kMaxPending = 4096;

  // Adds text; a UTF-8 sequence may be cut anywhere.
  void Append(std::string_view text);
  // Ends the text.
  void Finish();
  // Returns the words found since the last call, in order, in bytes of the text.
  std::vector<TextRange> Take();

 private:
  void Segment(size_t bytes);

  std::string pending_;   // text that is not segmented
  size_t scanned_ = 0;    // bytes of it in which a place to cut was searched for
  bool after_ = false;    // the character before `scanned_` ends a word
  size_t segmented_ = 0;  // bytes of the text before pending_
  std::vector<TextRange> words_;
};

}  // namespace qtts

#endif  // QTTS_TEXT_WORD_FINDER_H_
