// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_RETRY_H_
#define GST_QTTS_RETRY_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "qtts/end_reason.h"
#include "qtts/frame.h"
#include "qtts/status.h"
#include "qtts/words.h"

namespace qtts {
class Stream;
}

namespace gstqtts {

// Mixes the bits of `number`.
uint64_t MixBits(uint64_t number);

// Returns the seed of the `attempt`-th repetition of an utterance whose first seed is `seed`; attempt 0: `seed` itself.
uint64_t SeedOfAttempt(uint64_t seed, int attempt);

// End of the stream of an utterance.
struct SpeechEnd {
  qtts::EndReason reason = qtts::EndReason::kError;
  qtts::Status status;
  std::vector<qtts::SpokenWord> last_words;
  qtts::SpeechReport report;
};
SpeechEnd EndOf(const qtts::Stream& stream);

// Returns true if the speech has a fault that another seed may mend: the model missed the end of its text, skipped or
// repeated words, or stopped early.
bool IsFaulty(const SpeechEnd& end);

// All that a stream has made, to its end.
struct Attempt {
  std::deque<qtts::Frame> frames;
  SpeechEnd end;
  uint64_t seed = 0;
};

// Attempts at one utterance none of whose sound has left the element (property "retry").
//
// Not thread-safe: the streaming thread's.
class Retries {
 public:
  Retries() = default;
  explicit Retries(int allowed) : allowed_(allowed) {}

  // Returns true if the utterance is to be kept until its end.
  bool on() const { return allowed_ > 0; }
  // Returns the number of repetitions so far.
  int made() const { return made_; }

  // Judges the attempt that has ended. True: make one more, with SeedOfAttempt(seed, made()). Otherwise `attempt` is
  // the best one of all, of equal ones the first.
  bool Judge(Attempt* attempt);
  // Returns the number of bytes of the frames of the best attempt so far.
  size_t held_bytes() const;

 private:
  int allowed_ = 0;
  int made_ = 0;
  std::optional<Attempt> best_;  // of those before
};

}  // namespace gstqtts

#endif  // GST_QTTS_RETRY_H_
