// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_VOICE_REFERENCE_H_
#define QTTS_VOICE_REFERENCE_H_

#include <vector>

#include "qtts/status.h"
#include "qtts/voice.h"

namespace qtts {

// Sample rate of the encoders, in Hz.
inline constexpr int kReferenceRate = 24000;

// Converts a recording to the input of the encoders, mono at kReferenceRate, exactly as the official package does (spec
// 8): channels averaged, resampled with soxr at HQ quality, no trimming, no change of loudness.
//
// kInvalidArgument, with the remedy, for a recording that is shorter than a second, longer than a minute, silent, not
// finite, or has an invalid rate or channel count.
Result<std::vector<float>> PrepareReference(const Recording& recording);

}  // namespace qtts

#endif  // QTTS_VOICE_REFERENCE_H_
