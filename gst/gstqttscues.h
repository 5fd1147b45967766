// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_CUES_H_
#define GST_QTTS_CUES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gstqttswordtrack.h"
#include "qtts/segmenter.h"

namespace gstqtts {

// The unit of text that a buffer of a text pad holds.
enum class Granularity {
  kWord,      // a word with its punctuation
  kSentence,  // a sentence
  kCue,       // at most two lines of a subtitle
};

// Text with the time at which it is heard, in nanoseconds.
struct TimedText {
  std::string text;
  uint64_t time = 0;
  uint64_t duration = 0;

  bool operator==(const TimedText&) const = default;
};

// Makes texts for display of the words that are told: with punctuation, white space as single spaces, and no text
// twice. A sentence or a cue is ready when its last word was told and its end is known: with the word after it, or at
// the end of the utterance.
//
// A cue is a sentence or a part of one that fits into two lines of 42 columns, as broadcasters have it; a wide
// character, such as a Chinese one, has two columns. It ends at a clause if it is more than one line long by then, and
// where the speech pauses for longer than 1.5 s. Its second line is divided by a line feed.
//
// Not thread-safe.
class CueMaker {
 public:
  explicit CueMaker(Granularity granularity = Granularity::kWord) : granularity_(granularity) {}

  // Takes words, and returns the texts that are ready.
  std::vector<TimedText> Add(const Told& told);
  // Ends the utterance: returns the text that has begun.
  std::vector<TimedText> End();
  Granularity granularity() const { return granularity_; }
  // Returns the time at which the text that has begun begins.
  std::optional<uint64_t> begun() const { return begun_ ? std::optional(begun_->time) : std::nullopt; }

 private:
  // A run of the utterance's characters.
  struct Run {
    size_t begin = 0;
    size_t end = 0;
    uint64_t time = 0;
    uint64_t stop = 0;
  };

  void Append(const std::string& text);
  void AddWord(const ToldWord& word, std::vector<TimedText>* ready);
  Run WithPunctuation(const ToldWord& word) const;
  bool EndsSentence(size_t from, size_t to) const;
  bool EndsClause(size_t end) const;
  void Finish(std::vector<TimedText>* ready);
  std::u32string Text(size_t begin, size_t end) const;

  const Granularity granularity_;
  uint64_t id_ = 0;
  std::u32string characters_;  // of the utterance so far
  size_t bytes_ = 0;           // the same in UTF-8
  qtts::Segmenter segmenter_;
  std::vector<size_t> sentence_ends_;
  size_t shown_ = 0;  // end of the last word with its punctuation
  std::optional<Run> begun_;
};

}  // namespace gstqtts

#endif  // GST_QTTS_CUES_H_
