// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_POSITION_H_
#define GST_QTTS_POSITION_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gstqtts {

// Estimates where in its text an utterance is. The model gives no alignment of sound and text, so this
// goes by what the text looks like: each character has a usual duration (a letter of an alphabet less than
// a syllable sign, a comma a pause), scaled by how fast the voice has spoken so far. Good enough to know
// which words a listener has heard, not to move lips.
//
// Offsets and lengths are in characters, that is, Unicode code points. Not thread-safe.
class TextPosition {
 public:
  struct Word {
    size_t offset = 0;
    size_t length = 0;

    bool operator==(const Word&) const = default;
  };

  // `pace` scales the usual durations: above 1 for a slow voice. `language`: a BCP-47 tag, for the words; empty:
  // unknown.
  explicit TextPosition(double pace = 1.0, std::string language = {}) : pace_(pace), language_(std::move(language)) {}

  // The text, or what it grows by; whole characters of UTF-8.
  void Append(std::string_view text);

  // Looks for the words of the text so far, as Advance() does if that was not done: the better part of 0.1 ms.
  void FindWords();

  // Tells that `seconds` of sound have been spoken in all. Returns the words begun since the last call,
  // each of them once.
  std::vector<Word> Advance(double seconds);

  // Characters spoken, probably: never less than before, never more than size().
  size_t spoken() const { return spoken_; }
  size_t size() const { return durations_.size(); }

  // How long all of it takes at a pace of 1.
  double usual_seconds() const { return usual_seconds_; }

 private:
  double pace_;
  std::string language_;
  std::string text_;
  std::vector<float> durations_;  // seconds, of each character
  double usual_seconds_ = 0;
  size_t spoken_ = 0;
  double spoken_seconds_ = 0;  // what the spoken characters take at a pace of 1
  std::vector<Word> words_;    // of the text up to `words_size_` characters
  size_t words_size_ = 0;
  size_t words_begun_ = 0;  // the first words that were told
};

// How fast a voice speaks, learned from what it has spoken.
class Pace {
 public:
  // An utterance that usually takes `usual_seconds` took `seconds`.
  void Learn(double usual_seconds, double seconds);
  double value() const { return value_; }

 private:
  double value_ = 1.0;
};

}  // namespace gstqtts

#endif  // GST_QTTS_POSITION_H_
