// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_PREPARE_MAPPED_TEXT_H_
#define QTTS_TEXT_PREPARE_MAPPED_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "qtts/text_preparer.h"
#include "qtts/utf8.h"

namespace qtts {

// A character on its way through the steps, and the run of the original text that it stands for, in characters.
struct MappedChar {
  char32_t code = 0;
  size_t begin = 0;
  size_t end = 0;
  bool copied = false;  // stands for the one character of its run
};
using MappedText = std::vector<MappedChar>;

// Makes spoken text and its map of the last step's characters.
class MapBuilder {
 public:
  void Add(const MappedChar& character);
  // Ends the source, which has `length` characters, all of which the map then covers.
  void Finish(size_t length);
  PreparedText Take();

 private:
  TextMapPiece* Continue(bool copied, size_t source_begin);

  PreparedText prepared_;
  size_t spoken_ = 0;  // characters so far
  size_t source_ = 0;  // end of the map
};

inline std::u32string ToUtf32(std::string_view text) {
  std::u32string codes;
  for (Utf8Char c = DecodeUtf8(text); c.size > 0; c = DecodeUtf8(text)) {
    codes += c.code;
    text.remove_prefix(c.size);
  }
  return codes;
}

inline std::string ToUtf8(std::u32string_view codes) {
  std::string text;
  for (const char32_t code : codes) AppendUtf8(code, &text);
  return text;
}

}  // namespace qtts

#endif  // QTTS_TEXT_PREPARE_MAPPED_TEXT_H_
