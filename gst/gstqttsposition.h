// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_POSITION_H_
#define GST_QTTS_POSITION_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qtts/text_preparer.h"
#include "qtts/words.h"

namespace gstqtts {

// Position of an utterance in its text, as it was written: what is spoken for it may be longer (see
// qtts/text_preparer.h). Where the engine does not measure the words, or not yet, the position is estimated: by a usual
// duration per character (a letter takes less than a syllable sign, a comma is a pause), scaled by the voice's pace so
// far. Accurate enough to know which words a listener has heard, not for lip movement.
//
// Offsets and lengths are in characters, that is, Unicode code points. Not thread-safe.
class TextPosition {
 public:
  struct Word {
    size_t offset = 0;
    size_t length = 0;

    bool operator==(const Word&) const = default;
  };
  // A run of the written text.
  struct Run {
    size_t begin = 0;
    size_t end = 0;
    bool goes_on = false;  // more words are spoken for it

    bool operator==(const Run&) const = default;
  };

  // `pace` scales the usual durations: above 1 for a slow voice. `language`: a BCP-47 tag, for the words; empty:
  // unknown.
  explicit TextPosition(double pace = 1.0, std::string language = {}) : pace_(pace), language_(std::move(language)) {}

  // Appends spoken text, in whole characters of UTF-8, and its part of the map. No map: it is what was written.
  void Append(std::string_view spoken, const std::vector<qtts::TextMapPiece>& map = {});

  // Finds the words of the text so far, which otherwise delays Advance() by almost 0.1 ms.
  void FindWords();

  // Sets the total length of the sound spoken so far. Returns the words begun since the last call, each once.
  std::vector<Word> Advance(double seconds);

  // Anchors the estimate: the written text up to `written` has been spoken after `seconds` of sound, and its words were
  // told.
  void Anchor(size_t written, double seconds);

  // Returns the written text that a run of the spoken one stands for. Beyond the text so far there is none.
  Run Written(const qtts::TextRange& spoken);

  // Returns the estimated duration of a word, in seconds.
  double SecondsOf(const Word& word) const;

  // Sets the pace, within reason, by which the whole text takes `seconds`.
  void SetLength(double seconds);
  // Returns the estimated beginning of a written word, in seconds, from that of the text.
  double StartOf(const Word& word) const;
  // Returns all words, as Advance() would return them.
  std::vector<Word> Words();

  // Returns the estimated number of written characters spoken: never decreases and is at most size().
  size_t spoken() const { return map_.SourceOf(spoken_, spoken_).first; }
  size_t size() const { return map_.SourceOf(durations_.size(), durations_.size()).first; }

  // Returns the duration of the whole text at a pace of 1.
  double usual_seconds() const { return usual_seconds_; }

 private:
  size_t CharactersUpTo(size_t byte);
  double SecondsBetween(size_t begin, size_t end) const;

  double pace_;
  std::string language_;
  std::string text_;  // as it is spoken
  qtts::TextMap map_;
  std::vector<float> durations_;  // seconds, of each character
  double usual_seconds_ = 0;
  size_t spoken_ = 0;
  double spoken_seconds_ = 0;  // duration of the spoken characters at a pace of 1
  double late_ = 0;            // seconds by which the sound is behind that
  std::vector<Word> words_;    // of the text up to `words_size_` characters
  size_t words_size_ = 0;
  size_t words_begun_ = 0;  // number of words that have begun
  size_t written_ = 0;      // end of the last word returned, as it was written
  // The last position that was counted, in both units.
  size_t counted_bytes_ = 0;
  size_t counted_characters_ = 0;
};

// The pace of a voice, learned from its utterances.
class Pace {
 public:
  // Learns from an utterance that usually takes `usual_seconds` and took `seconds`.
  void Learn(double usual_seconds, double seconds);
  double value() const { return value_; }

 private:
  double value_ = 1.0;
};

}  // namespace gstqtts

#endif  // GST_QTTS_POSITION_H_
