// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_COUNTS_H_
#define GST_QTTS_COUNTS_H_

#include <chrono>
#include <cstdint>
#include <optional>

#include "gstqttsreport.h"
#include "qtts/end_reason.h"

namespace gstqtts {

// Counts of a run, for `stats`. Not thread-safe: the Player's, guarded by the Monitor.
struct RunCounts {
  uint64_t utterances = 0;   // ended, for any reason except interruption
  uint64_t failed = 0;       // of these: failed, or gave up waiting for a slot
  uint64_t unsayable = 0;    // of these, with nothing to say
  uint64_t interrupted = 0;  // utterances that were interrupted
  uint64_t frames = 0;       // frames that left the element
  uint64_t runaways = 0;     // utterances whose end the model missed
  uint64_t retries = 0;      // how often utterances were made again
  uint64_t trimmed = 0;      // samples of silence that were cut in front of utterances
  // Utterances that were measured and spoken to their end: their number, how many were faulty, and the sum of the
  // shares of their texts that were spoken.
  uint64_t measured = 0;
  uint64_t incomplete = 0;
  double coverage_sum = 0;
  uint64_t words_skipped = 0;
  uint64_t words_repeated = 0;
  // Time from handing a text to the engine to its first frame.
  uint64_t first_frames = 0;
  std::chrono::nanoseconds first_frame_latency_last{0};
  std::chrono::nanoseconds first_frame_latency_sum{0};
  std::chrono::nanoseconds first_frame_latency_max{0};
  // Time that Next() waited for frames, and how long their sound is.
  std::chrono::nanoseconds waited{0};
  double sound_seconds = 0;
  std::optional<uint64_t> seed;  // of the last utterance

  void AddFirstFrame(std::chrono::nanoseconds latency);
  // Counts an utterance that has ended.
  void AddEnd(qtts::EndReason reason);
  // Adds the engine's findings about an utterance, by its kFinished.
  void AddCoverage(const Report& finished);
  // Returns true if there was text and all of it failed.
  bool NothingWasSpoken() const { return failed > 0 && failed == utterances && interrupted == 0; }
};

}  // namespace gstqtts

#endif  // GST_QTTS_COUNTS_H_
