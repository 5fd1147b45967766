// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_VOICE_REFERENCE_CHECK_H_
#define QTTS_VOICE_REFERENCE_CHECK_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qtts/voice.h"

namespace qtts {

// A recording with a transcript should not be longer.
inline constexpr double kMaxGoodSeconds = 15;

enum class ReferenceFault {
  kSilenceInFront,  // the voice copies it
  kLoudTail,        // speech begins with its last sound
  kLong,            // more than kMaxGoodSeconds with a transcript
  kTextTooLong,     // more is written than can be said in that time
  kTextTooShort,
  kQuiet,
  kClipped,
  kNoisy,
};

struct ReferenceFinding {
  ReferenceFault fault{};
  std::string problem;  // with the value measured
  std::string remedy;

  std::string message() const { return problem + ": " + remedy; }
};

// Checks whether a recording makes a good voice. `pcm` is what the encoders get of `recording`: mono at kReferenceRate,
// not empty. The faults of beginning, end, length and text count only where the voice has the recording as an example,
// that is with CloneOptions::reference_text.
std::vector<ReferenceFinding> CheckReference(const Recording& recording, std::span<const float> pcm,
                                             const CloneOptions& options);

// Returns the time that a text takes to say, as a number of letters of a European language: a Han character counts as
// 3.5, a kana as 2, a syllable of Hangul as 2.5, a digit as 4. White space and marks count nothing. UTF-8.
double CountSpokenLetters(std::string_view text);

}  // namespace qtts

#endif  // QTTS_VOICE_REFERENCE_CHECK_H_
