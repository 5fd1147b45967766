// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/markup/map_window.h"

#include <algorithm>

#include "qtts/utf8.h"

namespace qtts {

MappedChar MapWindow::Find(size_t position) {
  while (!pieces_.empty() && pieces_.front().spoken_end <= position) {
    last_ = pieces_.front().source_end;
    pieces_.pop_front();
  }
  if (pieces_.empty()) return {0, last_, last_, false};
  const TextMapPiece& piece = pieces_.front();
  if (!piece.copied || position < piece.spoken_begin) return {0, piece.source_begin, piece.source_end, false};
  const size_t source = piece.source_begin + (position - piece.spoken_begin);
  return {0, source, source + 1, true};
}

std::string DocumentWindow::Take(size_t begin, size_t end) {
  if (begin > position_) {
    byte_ += Utf8Head(std::string_view(text_).substr(byte_), begin - position_).size();
    position_ = begin;
  }
  // Each byte is moved about once.
  if (byte_ > text_.size() / 2) {
    text_.erase(0, byte_);
    byte_ = 0;
  }
  return std::string(Utf8Head(std::string_view(text_).substr(byte_), end - std::min(position_, end)));
}

}  // namespace qtts
