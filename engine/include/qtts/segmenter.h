// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SEGMENTER_H_
#define QTTS_SEGMENTER_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace qtts {

// Splits text that comes in pieces into sentences, by UAX #29 (ICU) with rules for abbreviations: no sentence ends
// after "Dr.", an initial or the number of an item. A sentence is returned as soon as no later text can change its end,
// that is, when the next one has begun. So the result does not depend on how the text is split into pieces.
//
// Text is UTF-8 of whole characters; lengths are in characters (Unicode code points). Not thread-safe.
class Segmenter {
 public:
  struct Options {
    // True: a line end also ends a sentence. False: only an empty line does, and line ends within a sentence become
    // spaces.
    bool newline_ends = false;
    // Maximum length of a sentence; at least 1. Longer ones are cut at a possible line break.
    size_t max_chars = 4000;
    // BCP-47 tag, for ICU's boundaries and for numbers with a full stop, which are ordinals in German ("am 3.
    // Oktober"); empty: unknown.
    std::string language;
  };

  Segmenter();
  ~Segmenter();
  Segmenter(Segmenter&&) noexcept;
  Segmenter& operator=(Segmenter&&) noexcept;

  // Applies to text not returned yet.
  void SetOptions(const Options& options);

  void Append(std::string_view text);

  // The next sentence, without surrounding white space and never blank; none until more text comes.
  std::optional<std::string> Next();
  // The same, as if the text ended here. Call it until it returns none.
  std::optional<std::string> NextAtEnd();

  // True if there is text that was not returned yet.
  bool empty() const { return start_ == text_.size(); }
  // Number of bytes before the text that was not returned yet, since Clear().
  size_t position() const { return erased_ + start_; }
  void Clear();

 private:
  struct Breaks;

  std::optional<std::string> NextSentence(bool at_end);
  size_t FindEnd(std::string_view view, bool cut, bool at_end);

  Options options_;
  std::unique_ptr<Breaks> breaks_;
  std::string text_;
  size_t start_ = 0;   // of what has not been given out
  size_t erased_ = 0;  // bytes before `text_`
};

// Where to cut well-formed `text` to at most `max_chars` characters: after a sentence, else where a line
// could be broken, else anywhere. In bytes; text.size() if it is short enough. `language` as of the Segmenter.
size_t CutPosition(std::string_view text, size_t max_chars, const std::string& language = {});

}  // namespace qtts

#endif  // QTTS_SEGMENTER_H_
