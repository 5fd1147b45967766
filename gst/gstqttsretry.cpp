// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsretry.h"

#include <cstddef>
#include <tuple>
#include <utility>

#include "qtts/engine.h"

namespace gstqtts {
namespace {

bool Failed(const SpeechEnd& end) {
  return end.reason == qtts::EndReason::kError || end.reason == qtts::EndReason::kBusy ||
         end.reason == qtts::EndReason::kCancelled;
}

// Returns the rank of speech: a lower rank is better speech.
std::tuple<bool, bool, size_t, double> Rank(const SpeechEnd& end) {
  return {Failed(end), end.reason == qtts::EndReason::kRunaway || end.report.end_missed,
          end.report.skipped.size() + end.report.repeated.size(), -end.report.coverage()};
}

}  // namespace

// Returns the finalizer of SplitMix64.
uint64_t MixBits(uint64_t number) {
  number = (number ^ (number >> 30U)) * 0xBF58476D1CE4E5B9U;
  number = (number ^ (number >> 27U)) * 0x94D049BB133111EBU;
  return number ^ (number >> 31U);
}

// Returns a seed below 2^53, as every seed that is told.
uint64_t SeedOfAttempt(uint64_t seed, int attempt) {
  return attempt == 0 ? seed : MixBits(seed + static_cast<uint64_t>(attempt)) >> 11U;
}

SpeechEnd EndOf(const qtts::Stream& stream) {
  return {stream.end_reason(), stream.status(), stream.last_words(), stream.report()};
}

bool IsFaulty(const SpeechEnd& end) {
  switch (end.reason) {
    case qtts::EndReason::kRunaway:
      return true;
    case qtts::EndReason::kComplete:
      return end.report.measured && !end.report.complete();
    case qtts::EndReason::kMaxDuration:  // the user's bound cuts every attempt
      return end.report.measured && end.report.end_missed;
    default:
      return false;
  }
}

bool Retries::Judge(Attempt* attempt) {
  // If an attempt after the first one fails, the utterance does not.
  const bool again = IsFaulty(attempt->end) && made_ < allowed_;
  if (best_ && !(Rank(attempt->end) < Rank(best_->end))) std::swap(*attempt, *best_);
  if (!again) {
    best_.reset();
    return false;
  }
  best_ = std::move(*attempt);
  *attempt = {};
  ++made_;
  return true;
}

size_t Retries::held_bytes() const {
  size_t bytes = 0;
  if (best_) {
    for (const qtts::Frame& frame : best_->frames) bytes += frame.pcm.size() * sizeof(float);
  }
  return bytes;
}

}  // namespace gstqtts
