// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_WORD_TRACK_H_
#define GST_QTTS_WORD_TRACK_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "gstqttsshaper.h"

namespace gstqtts {

// A time on both clocks of the element, in nanoseconds.
struct Moment {
  uint64_t running_time = 0;
  uint64_t time = 0;  // a buffer's timestamp, in the segment of the sound
};

// Map of where the sound of an utterance has left the element: maps a time within the utterance's sound, as the engine
// made it, to the moment at which it is heard. The beginning and silences may have been cut out, the rate may have been
// changed, and in live streams late frames leave gaps.
//
// Owned by one utterance. Not thread-safe.
class SoundPlaces {
 public:
  // Adds sound that leaves: `spans` are heard from `moment` on, `samples` of them.
  void Add(const std::vector<SoundSpan>& spans, size_t samples, int rate, const Moment& moment);
  // Sets the spans of the whole utterance, if they are known before any of it leaves.
  void Plan(const std::vector<SoundSpan>& spans, int rate);
  bool planned() const { return !plan_.empty(); }

  // Returns the moment at which a time is heard. One that was cut off at the beginning is that of the first sample; a
  // time beyond the last sample, its end; a time that was cut out, the end of the sound before it.
  Moment At(std::chrono::nanoseconds within) const;
  // Returns the same, but sound beyond the last sample is expected to follow without a gap: as planned, or at the rate
  // of the last sound.
  Moment Expected(std::chrono::nanoseconds within) const;

  bool empty() const { return spans_.empty(); }
  std::chrono::nanoseconds begin() const;
  std::chrono::nanoseconds end() const;

 private:
  // Samples that are heard without a gap.
  struct Span {
    uint64_t begin = 0;  // nanoseconds within the utterance
    uint64_t end = 0;
    uint64_t length = 0;  // nanoseconds for which they are heard
    Moment moment;

    uint64_t Into(uint64_t time) const;
  };

  static const Span& Find(const std::vector<Span>& spans, uint64_t time);
  static void Append(const Span& span, std::vector<Span>* spans);

  std::vector<Span> spans_;
  std::vector<Span> plan_;  // its moments begin with 0
};

// A word of an utterance's text and its place in the utterance's sound. Positions are in characters.
struct TimedWord {
  size_t begin = 0;
  size_t end = 0;
  std::chrono::nanoseconds start{0};
  std::chrono::nanoseconds duration{0};

  std::chrono::nanoseconds stop() const { return start + duration; }
  bool operator==(const TimedWord&) const = default;
};

// Words of an utterance that the engine has measured and that have not been told, in order. Several words that are
// spoken for a written one, such as a number, are one.
//
// Owned by one utterance. Not thread-safe.
class WordTrack {
 public:
  // Adds a word. `goes_on`: more words are spoken for the same written one. It is then kept until these have come.
  void Add(const TimedWord& word, bool goes_on);
  // Ends the words: no more come.
  void Finish() { held_ = false; }
  // Skips the words up to `end`, a position in the text: they were told otherwise.
  void SkipTo(size_t end);

  // Takes the words that begin before `sounded`.
  std::vector<TimedWord> Take(std::chrono::nanoseconds sounded);

  // Returns the time before which everything that was spoken has been taken, as far as the sound up to `sounded` is
  // concerned.
  std::chrono::nanoseconds known_until(std::chrono::nanoseconds sounded) const;
  // Returns true if no word waits.
  bool empty() const { return words_.empty(); }
  // Returns the end of the last word that was taken or skipped, in the text.
  size_t told() const { return told_; }
  // Returns the number of characters spoken when the sound has come to `sounded`: of the last known word that has
  // begun, the share that was heard.
  size_t SpokenAt(std::chrono::nanoseconds sounded) const;
  // Returns the last word that was taken; of no length before the first.
  const TimedWord& last() const { return last_; }

 private:
  std::deque<TimedWord> words_;
  TimedWord last_;
  size_t told_ = 0;
  bool held_ = false;  // the last word
};

// Extent to which words are known before the sound leaves the element. A stream of text that comes as far as its sound,
// or less, can stop a pipeline for ever: a muxer keeps the sound until the video comes, and textoverlay the video until
// the text does.
enum class TextAhead {
  kNone,       // as far as the engine is ahead: live sound does not wait
  kWords,      // all words that begin in a frame that leaves
  kSentences,  // all sentences
};

// A word that has been told, on the clock of the sound. Positions are in characters of the utterance's text.
struct ToldWord {
  size_t begin = 0;
  size_t end = 0;
  uint64_t time = 0;
  uint64_t duration = 0;
};

// Words of one utterance that were told together, for the text pads.
struct Told {
  uint64_t id = 0;
  std::string text;  // of the utterance so far
  std::vector<ToldWord> words;
  uint64_t known_until = 0;  // timestamp before which no more words will be told
  bool over = false;         // the utterance is over
};

}  // namespace gstqtts

#endif  // GST_QTTS_WORD_TRACK_H_
