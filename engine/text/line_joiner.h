// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_LINE_JOINER_H_
#define QTTS_TEXT_LINE_JOINER_H_

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace qtts {

// Joins the lines of a paragraph: a line end becomes a space, or nothing after a hyphen or between Chinese and Japanese
// letters. Finds the ends of paragraphs (a blank line, a form feed) and the items of lists. Text comes character by
// character; a step holds back a line end, white space and hyphens before it, and the beginning of the next line, until
// they are known.
//
// Not thread-safe.
class LineJoiner {
 public:
  struct Step {
    enum class Kind {
      kCharacter,  // `c`
      kLineEnd,    // with `lines_end` only
      kItem,       // the item of a list begins; its number is the next `label` characters
      kParagraph,  // a paragraph ends
    };
    Kind kind = Kind::kCharacter;
    char32_t c = 0;
    size_t begin = 0;  // position in the text, as given to Push()
    size_t end = 0;
    size_t label = 0;
    size_t lines = 0;  // of the paragraph that ends: those with text
  };

  // Sets the options. `lines_end`: a line end is a step of its own, and joins nothing. `ordinals`: the language writes
  // ordinals with a full stop, so that a line that begins with "1." needs more to be an item.
  void SetOptions(bool lines_end, bool ordinals) {
    lines_end_ = lines_end;
    ordinals_ = ordinals;
  }

  // Adds the character at [begin, end) of the text. Steps that are known by now are appended to `steps`.
  void Push(char32_t c, size_t begin, size_t end, std::deque<Step>* steps);
  // Releases all that was held back: the text ends here, as far as it is known.
  void Finish(std::deque<Step>* steps);
  // Returns true if anything but white space is held back.
  bool holds_text() const { return !head_.empty() || hyphen_; }
  void Clear();

 private:
  // Beginning of a line.
  struct Item {
    bool is_item = false;
    bool undecided = false;
    size_t label = 0;  // characters
    bool ordered = false;
    char32_t form = 0;           // the bullet, or what follows the number
    int number = 0, letter = 0;  // values as a number or a letter; 0: it is none
    int roman = 0;
  };

  void EndLine(char32_t c, std::deque<Step>* steps);
  void BeginLine(bool final, std::deque<Step>* steps);
  void PushInLine(const Step& step, std::deque<Step>* steps);
  void Emit(const Step& step, std::deque<Step>* steps);
  void ReleaseHyphen(std::deque<Step>* steps);
  void Join(std::deque<Step>* steps);
  Item FindItem(bool final) const;
  Item FindBullet(bool final) const;
  Item FindNumber(bool final) const;
  bool MayBegin(const Item& item) const;
  bool Continues(const Item& item) const;
  bool HyphenIsUndecided() const;

  bool lines_end_ = false;
  bool ordinals_ = false;
  bool after_return_ = false;    // the last character was U+000D
  size_t newlines_ = 0;          // since the last line with text
  size_t lines_ = 0;             // of this paragraph, with text
  bool at_line_start_ = true;    // no text in this line, or only `head_`
  bool paragraph_ended_ = true;  // no text since the last paragraph ended
  std::vector<Step> head_;       // the beginning of a line
  std::vector<Step> spaces_;     // white space behind the last character of a line
  bool hyphen_ = false;          // a hyphen is held back
  Step held_hyphen_;
  // The last characters that were emitted, and what they mean.
  std::u32string word_;       // the letters of the last word
  char32_t last_ = 0;         // not white space
  size_t last_end_ = 0;       // where it ends
  bool after_space_ = false;  // white space was emitted behind it
  bool ends_clause_ = false;  // an end mark or a colon, perhaps closed by quotes
  Item last_item_;            // of this paragraph
};

}  // namespace qtts

#endif  // QTTS_TEXT_LINE_JOINER_H_
