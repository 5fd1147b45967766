// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_ALIGNMENT_WORD_TIMES_H_
#define QTTS_ALIGNMENT_WORD_TIMES_H_

#include <deque>
#include <optional>
#include <vector>

#include "alignment/pauses.h"
#include "qtts/words.h"

namespace qtts {

// Turns the times at which the talker's head moved to words into the times at which the words sound. The head goes to
// the word behind a pause up to 450 ms early, so a word near a pause begins where the sound resumes. Times are in
// seconds of the utterance. The result does not depend on when words and sound are added. Not thread-safe.
class WordTimes {
 public:
  // A word that begins in a silence, or up to kBeforePause before it, begins at the silence's end if that is at most
  // kPauseReach away.
  static constexpr double kBeforePause = 0.16;
  static constexpr double kPauseReach = 0.48;
  // The first word begins with the first sound, unless that is so long before.
  static constexpr double kFirstReach = 0.6;
  // Minimum time between the starts of two words.
  static constexpr double kSpacing = 0.01;

  // Adds the next word: where the head has moved to it. `first`: it is the first one of a part, whose sound begins at
  // `part_begin`.
  void Add(const TextRange& text, double moved, bool first = false, double part_begin = 0);

  // Returns the words whose start and duration are decided, in order. No word that is still to be added begins before
  // `next`.
  std::vector<SpokenWord> Take(const Pauses& pauses, double next);

  // Returns the earliest time that the words here depend on; none if there are none.
  std::optional<double> earliest() const;

 private:
  struct Word {
    TextRange text;
    double moved = 0;
    bool first = false;
    double part_begin = 0;
    std::optional<double> start;
  };
  std::optional<double> Decide(const Word& word, const Pauses& pauses) const;

  std::deque<Word> words_;
  std::optional<double> last_start_;
};

}  // namespace qtts

#endif  // QTTS_ALIGNMENT_WORD_TIMES_H_
