// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_WORDS_H_
#define QTTS_WORDS_H_

#include <chrono>
#include <cstddef>
#include <vector>

// Times of words and coverage of a text, read off the attention of the talker (doc/words.md).
namespace qtts {

// A part of an utterance's text, in bytes: of Request::text and all that was appended to it.
struct TextRange {
  size_t begin = 0;
  size_t end = 0;

  bool operator==(const TextRange&) const = default;
};

// One word, by the rules of UAX #29, as it is spoken.
struct SpokenWord {
  TextRange text;
  // Time within the utterance's sound: 0 is the first sample of frame 0.
  std::chrono::nanoseconds start{0};
  std::chrono::nanoseconds duration{0};

  bool operator==(const SpokenWord&) const = default;
};

// Report of how completely an utterance's text was spoken.
struct SpeechReport {
  // False: the checkpoint has no alignment head, or the head did not follow this text. Nothing else is known then.
  bool measured = false;
  size_t tokens = 0;  // of the text so far
  size_t spoken_tokens = 0;
  std::vector<TextRange> skipped;   // words that were not spoken
  std::vector<TextRange> repeated;  // words that were spoken again
  bool end_missed = false;          // the model went on after the end of the text
  bool stopped_early = false;       // the model ended before the text

  // Returns the share of the text that was spoken, 0 to 1.
  double coverage() const {
    return tokens == 0 ? 1.0 : static_cast<double>(spoken_tokens) / static_cast<double>(tokens);
  }
  // Returns true if every word was spoken once, and the speech ended with the text.
  bool complete() const { return skipped.empty() && repeated.empty() && !end_missed && !stopped_early; }

  bool operator==(const SpeechReport&) const = default;
};

}  // namespace qtts

#endif  // QTTS_WORDS_H_
