// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_MARKUP_MAP_WINDOW_H_
#define QTTS_TEXT_MARKUP_MAP_WINDOW_H_

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "text/prepare/mapped_text.h"

namespace qtts {

// The part of a map from text to document that is still needed, for positions that only grow.
class MapWindow {
 public:
  void Append(const std::vector<TextMapPiece>& pieces) { pieces_.insert(pieces_.end(), pieces.begin(), pieces.end()); }
  // Returns the characters of the document for the one at `position` of the text.
  MappedChar Find(size_t position);

 private:
  std::deque<TextMapPiece> pieces_;
  size_t last_ = 0;  // end of the last piece that was dropped, in the document
};

// The end of a document, from which runs are taken in order. Positions are in characters.
class DocumentWindow {
 public:
  void Append(std::string_view text) { text_.append(text); }
  // Returns the characters [begin, end); what comes before `begin` is not asked for again.
  std::string Take(size_t begin, size_t end);

 private:
  std::string text_;
  size_t byte_ = 0;      // in `text_`
  size_t position_ = 0;  // of that byte
};

}  // namespace qtts

#endif  // QTTS_TEXT_MARKUP_MAP_WINDOW_H_
