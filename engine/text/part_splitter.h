// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_PART_SPLITTER_H_
#define QTTS_TEXT_PART_SPLITTER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qtts/request.h"
#include "qtts/segmenter.h"

namespace qtts {

// Splits a text that comes in pieces into parts that a model can speak, by PartBounds. The result does not depend on
// how the text is cut: each decision about the end of a part looks at the same number of words behind it.
//
// Lengths are in characters; an ideograph, a kana and a Korean syllable count as three, since they take as long to
// speak. Up to PartBounds::sentence nothing is held back; beyond it, the last two words that are spoken are.
//
// The white space between two parts belongs to none, nor do words of punctuation alone between them. A text of one part
// is returned unchanged.
//
// Owned by one stream. Not thread-safe.
class PartSplitter {
 public:
  // Text of the part that was returned last; `ends_part`: its last one. It begins with byte `begin` of all text.
  struct Piece {
    std::string text;
    bool ends_part = false;
    size_t begin = 0;
  };

  // `bounds.max` is at least 1. `language`: a BCP-47 tag, for the ends of sentences; empty: unknown.
  PartSplitter(const PartBounds& bounds, std::string language);

  // Adds text; a UTF-8 sequence may be cut anywhere.
  void Append(std::string_view text) { text_ += text; }
  // Ends the text.
  void Finish();
  // Returns the next piece, as far as the text decides it. Takes time proportional to the part, not to the text.
  std::optional<Piece> Next();
  // Returns true if the text is complete and has no further part.
  bool done();

 private:
  // A word and the white space behind it, in bytes from the beginning of the part.
  struct Word {
    size_t begin = 0;
    size_t text_end = 0;
    size_t end = 0;
    size_t width = 0;  // of the part up to text_end
  };

  bool SkipToPart();
  void FindWords();
  size_t LastAhead(size_t index) const;
  bool MayEndSentenceAfter(size_t index) const;
  bool EndsAfter(size_t index, size_t last);
  bool EndsSentence(size_t index, size_t last);
  bool IsComplete(size_t words) const;
  std::string_view TextOf(const Word& word) const;
  Piece Return(size_t end, bool ends_part);
  void Erase(size_t bytes);

  const PartBounds bounds_;
  std::string text_;   // from the beginning of the part
  size_t erased_ = 0;  // bytes before it
  bool finished_ = false;
  bool whole_ = false;  // it was before anything was returned
  bool first_part_ = true;
  bool begun_ = false;          // white space before the part was removed
  size_t returned_ = 0;         // bytes of `text_`
  size_t rejected_ = 0;         // the part ends behind no word within these bytes
  std::vector<Word> words_;     // of the part, and a few behind it
  bool last_is_whole_ = false;  // no later text belongs to the last word
  size_t free_end_ = 0;         // of the text within PartBounds::sentence
  Segmenter segmenter_;
};

}  // namespace qtts

#endif  // QTTS_TEXT_PART_SPLITTER_H_
