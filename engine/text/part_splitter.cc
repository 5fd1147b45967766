// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/part_splitter.h"

#include <unicode/uchar.h>
#include <unicode/uscript.h>

#include <algorithm>
#include <utility>

#include "qtts/text_check.h"
#include "qtts/utf8.h"

namespace qtts {
namespace {

// Words behind the end of a part that may decide it: so many that are spoken, among so many of any kind.
constexpr size_t kSpokenAhead = 2;
constexpr size_t kWordsAhead = 8;
// A longer run without white space counts as several words.
constexpr size_t kMaxWordWidth = 50;

size_t WidthOf(char32_t code) {
  if ((U_GET_GC_MASK(static_cast<UChar32>(code)) & U_GC_M_MASK) != 0) return 0;
  UErrorCode error = U_ZERO_ERROR;
  const UScriptCode script = uscript_getScript(static_cast<UChar32>(code), &error);
  const bool syllable = script == USCRIPT_HAN || script == USCRIPT_HIRAGANA || script == USCRIPT_KATAKANA ||
                        script == USCRIPT_HANGUL || script == USCRIPT_BOPOMOFO;
  return syllable ? 3 : 1;
}

// Returns true for a character of a script without white space between words: a word may end behind it.
bool StandsAlone(char32_t code) {
  return u_hasBinaryProperty(static_cast<UChar32>(code), UCHAR_IDEOGRAPHIC) != 0 ||
         (WidthOf(code) == 3 && code < 0xAC00);
}

// Returns true if no word may begin with it.
bool Continues(char32_t code) {
  constexpr char32_t kJoiner = 0x200D;
  if (code == kJoiner ||
      (U_GET_GC_MASK(static_cast<UChar32>(code)) & (U_GC_M_MASK | U_GC_PE_MASK | U_GC_PF_MASK)) != 0) {
    return true;
  }
  // Punctuation behind an ideograph.
  switch (u_getIntPropertyValue(static_cast<UChar32>(code), UCHAR_SENTENCE_BREAK)) {
    case U_SB_STERM:
    case U_SB_ATERM:
    case U_SB_SCONTINUE:
      return true;
    default:
      return false;
  }
}

// Returns the last character of `text` that closes no quote or bracket.
char32_t LastMark(std::string_view text) {
  while (!text.empty()) {
    const Utf8Char last = DecodeLastUtf8(text);
    if (u_getIntPropertyValue(static_cast<UChar32>(last.code), UCHAR_SENTENCE_BREAK) != U_SB_CLOSE) return last.code;
    text.remove_suffix(last.size);
  }
  return 0;
}

bool MayEndSentence(char32_t mark) {
  const int property = u_getIntPropertyValue(static_cast<UChar32>(mark), UCHAR_SENTENCE_BREAK);
  return property == U_SB_STERM || property == U_SB_ATERM;
}

// Returns true for commas, semicolons, colons and dashes of all scripts, closing brackets among LastMark()'s.
bool EndsClause(char32_t mark) {
  return u_getIntPropertyValue(static_cast<UChar32>(mark), UCHAR_SENTENCE_BREAK) == U_SB_SCONTINUE || mark == ';' ||
         mark == 0xFF1B || u_charType(static_cast<UChar32>(mark)) == U_DASH_PUNCTUATION;
}

bool HasLineEnd(std::string_view space) { return space.find_first_of("\n\r\f\v") != std::string_view::npos; }

}  // namespace

PartSplitter::PartSplitter(const PartBounds& bounds, std::string language) : bounds_(bounds) {
  Segmenter::Options options;
  options.language = std::move(language);
  segmenter_.SetOptions(options);
}

std::optional<PartSplitter::Piece> PartSplitter::Next() {
  if (!SkipToPart()) return std::nullopt;
  FindWords();
  size_t decided = free_end_;
  const bool fits = !words_.empty() && words_.back().end == text_.size() && words_.back().width <= bounds_.max;
  for (size_t i = 0; i < words_.size() && !(whole_ && fits); ++i) {
    const Word& word = words_[i];
    if (word.width < bounds_.sentence || word.text_end <= rejected_) continue;
    if (!IsComplete(i + 1)) break;
    // The part ends behind this word or a later one.
    decided = std::max(decided, word.text_end);
    bool ends = i + 1 < words_.size() && words_[i + 1].width > bounds_.max;
    if (!ends) {
      const size_t last = MayEndSentenceAfter(i) ? LastAhead(i) : i + 1;
      if (!IsComplete(last + 1)) break;
      ends = EndsAfter(i, last);
    }
    if (ends) {
      // Text within the sentence bound may have been returned with the white space behind the word.
      Piece piece = Return(std::max(word.text_end, std::min(free_end_, word.end)), true);
      Erase(word.end);
      returned_ = rejected_ = 0;
      begun_ = first_part_ = false;
      return piece;
    }
    rejected_ = word.text_end;
  }
  if (finished_ && (words_.empty() || words_.back().end == text_.size())) {
    Piece piece = Return(text_.size(), true);
    Erase(text_.size());
    returned_ = rejected_ = 0;
    begun_ = first_part_ = false;
    return piece;
  }
  if (decided <= returned_) return std::nullopt;
  return Return(decided, false);
}

void PartSplitter::Finish() {
  finished_ = true;
  whole_ = first_part_ && returned_ == 0;
}

bool PartSplitter::done() { return finished_ && !SkipToPart(); }

PartSplitter::Piece PartSplitter::Return(size_t end, bool ends_part) {
  Piece piece{text_.substr(returned_, end - returned_), ends_part, erased_ + returned_};
  returned_ = end;
  return piece;
}

void PartSplitter::Erase(size_t bytes) {
  text_.erase(0, bytes);
  erased_ += bytes;
}

// Removes what is not spoken before a part. The first part keeps it. Returns false if there is no text yet.
bool PartSplitter::SkipToPart() {
  if (begun_) return true;
  if (first_part_) {
    begun_ = !text_.empty();
    return begun_;
  }
  for (;;) {
    size_t space = 0;
    while (space < text_.size()) {
      const Utf8Char c = DecodeUtf8(std::string_view(text_).substr(space));
      if (c.incomplete || !IsWhiteSpace(c.code)) break;
      space += c.size;
    }
    Erase(space);
    if (text_.empty()) return false;
    FindWords();
    if (words_.empty() || !IsComplete(1)) return false;
    if (IsSayable(TextOf(words_.front()))) break;
    Erase(words_.front().end);
  }
  begun_ = true;
  return true;
}

// Finds the words of the part and those that may decide its end.
void PartSplitter::FindWords() {
  words_.clear();
  last_is_whole_ = false;
  free_end_ = 0;
  size_t width = 0;
  size_t word_width = 0;
  size_t beyond = 0;  // words that are too much for the part
  bool in_space = false;
  bool alone = false;  // the last character stands alone
  size_t i = 0;
  while (i < text_.size()) {
    const Utf8Char c = DecodeUtf8(std::string_view(text_).substr(i));
    if (c.incomplete && !finished_) break;
    const bool space = IsWhiteSpace(c.code);
    const bool begins = words_.empty() || in_space || alone || StandsAlone(c.code) || word_width >= kMaxWordWidth;
    if (!space && begins && (words_.empty() || in_space || !Continues(c.code))) {
      if (!words_.empty() && words_.back().width > bounds_.max && ++beyond > kWordsAhead) {
        last_is_whole_ = true;
        return;
      }
      words_.push_back({i, i, i, width});
      word_width = 0;
    }
    width += WidthOf(c.code);
    i += c.size;
    if (width <= bounds_.sentence) free_end_ = i;
    if (!words_.empty()) {
      Word& word = words_.back();
      word.end = i;
      if (!space) {
        word.text_end = i;
        word.width = width;
        word_width += WidthOf(c.code);
      }
    }
    in_space = space;
    alone = !space && StandsAlone(c.code);
  }
  last_is_whole_ = finished_;
}

// Returns true if the first `words` words are known in full, or the text ends before.
bool PartSplitter::IsComplete(size_t words) const {
  if (finished_) return true;
  return words_.size() > words || (words_.size() == words && last_is_whole_);
}

std::string_view PartSplitter::TextOf(const Word& word) const {
  return std::string_view(text_).substr(word.begin, word.text_end - word.begin);
}

// Returns the last of the words that decide whether the part ends behind word `index`; words_.size() if it has not come
// yet.
size_t PartSplitter::LastAhead(size_t index) const {
  size_t spoken = 0;
  size_t last = index + 1;
  for (; last < words_.size() && last < index + kWordsAhead; ++last) {
    if (IsSayable(TextOf(words_[last])) && ++spoken == kSpokenAhead) break;
  }
  return last;
}

// Returns true if a sentence may end behind word `index`, depending on the words that follow.
bool PartSplitter::MayEndSentenceAfter(size_t index) const {
  const Word& word = words_[index];
  return MayEndSentence(LastMark(TextOf(word))) ||
         HasLineEnd(std::string_view(text_).substr(word.text_end, word.end - word.text_end));
}

// Returns true if a sentence or a clause ends behind word `index`, by the words up to `last`.
bool PartSplitter::EndsAfter(size_t index, size_t last) {
  if (index + 1 == words_.size()) return false;  // the text ends here
  const Word& word = words_[index];
  if (MayEndSentenceAfter(index) && EndsSentence(index, last)) return true;
  return word.width >= bounds_.clause && EndsClause(LastMark(TextOf(word)));
}

// Returns true if the Segmenter, given the words up to `last`, finds the end of a sentence behind word `index`.
bool PartSplitter::EndsSentence(size_t index, size_t last) {
  const Word& word = words_[index];
  last = std::min(last, words_.size() - 1);
  const bool at_end = finished_ && words_[last].end == text_.size();
  segmenter_.Clear();
  segmenter_.Append(std::string_view(text_).substr(0, words_[last].end));
  while (segmenter_.position() < word.text_end) {
    if (!(at_end ? segmenter_.NextAtEnd() : segmenter_.Next())) return false;
  }
  return segmenter_.position() <= word.end;
}

}  // namespace qtts
