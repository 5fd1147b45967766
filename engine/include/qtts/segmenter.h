// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SEGMENTER_H_
#define QTTS_SEGMENTER_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qtts {

// The unit that ended before a sentence. It decides how long a reader pauses.
enum class SentenceGap {
  kSentence,   // a sentence, or there is nothing before it
  kParagraph,  // a paragraph: a blank line or a form feed follows
  kHeading,    // a heading: a short line without an end mark, followed by a blank line
};

// A sentence of a text. Positions are in characters (Unicode code points).
struct Sentence {
  // Text as it is spoken: its lines joined, without white space around it, never blank.
  std::string text;
  // Text as it was appended, from the first to the last of its characters.
  std::string source;
  // Number of characters that were appended before `source`.
  size_t offset = 0;
  SentenceGap before = SentenceGap::kSentence;
  // Place at which positions in `text` and `source` diverge: from character `text` on, they correspond one to one to
  // those from `source` on.
  struct Join {
    size_t text = 0;
    size_t source = 0;
    bool operator==(const Join&) const = default;
  };
  std::vector<Join> joins;

  // Returns the position in `source` of a character of `text`, or of its end.
  size_t SourcePosition(size_t position) const;
};

// Splits text that comes in pieces into sentences: by UAX #29, with rules for abbreviations (CLDR's and more), lists,
// headings, addresses, footnote marks and hyphens at line ends, in the ten languages of the models. A sentence is
// returned as soon as no later text can change its end: when the next one has begun, sometimes when that one's first
// word is complete ("Inc. The"). The result does not depend on how the text is split into pieces. Time is linear in the
// length of the text.
//
// Text is UTF-8 of whole characters. Not thread-safe.
class Segmenter {
 public:
  struct Options {
    // True: a line end also ends a sentence. False: only a blank line, a form feed and the next item of a list do, and
    // other line ends become spaces, or nothing between Chinese and Japanese letters. A hyphen at a line end is removed
    // if it only divides a word: "psycho-" and "logical" are "psychological".
    bool newline_ends = false;
    // True: "[1]" and raised numbers behind a word or an end mark are left out.
    bool skip_footnote_marks = false;
    // Maximum length of a sentence in characters; at least 1. Longer ones are cut at a possible line break.
    size_t max_chars = 4000;
    // BCP-47 tag of a language alone, for abbreviations, line breaks and numbers with a full stop, which are ordinals
    // in German ("am 3. Oktober"); empty: unknown.
    std::string language;
  };

  Segmenter();
  ~Segmenter();
  Segmenter(Segmenter&&) noexcept;
  Segmenter& operator=(Segmenter&&) noexcept;

  // Applies to text not returned yet; `newline_ends` to lines that Next() has not looked at.
  void SetOptions(const Options& options);

  void Append(std::string_view text);

  // Returns the next sentence; none until more text comes.
  std::optional<Sentence> Next();
  // Returns the same, as if the text ended here. Call it until it returns none.
  std::optional<Sentence> NextAtEnd();

  // Returns true if Next() has read all text, and has nothing left to return but white space.
  bool empty() const;
  // Returns the number of bytes up to the end of the last sentence that was returned, of the text since Clear().
  size_t position() const;
  // Drops what was not returned, and begins a text.
  void Clear();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns the place to cut well-formed `text` to at most `max_chars` characters: after a sentence, else where a line
// could be broken, else anywhere. In bytes; text.size() if it is short enough. `language` as of the Segmenter.
size_t CutPosition(std::string_view text, size_t max_chars, const std::string& language = {});

}  // namespace qtts

#endif  // QTTS_SEGMENTER_H_
