// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_VOICE_REFERENCE_H_
#define QTTS_VOICE_REFERENCE_H_

#include <vector>

#include "qtts/status.h"
#include "qtts/voice.h"

namespace qtts {

// The encoders' rate.
inline constexpr int kReferenceRate = 24000;

// A recording as the encoders want it: mono at kReferenceRate, exactly as the official package makes
// it (spec 8: channels averaged, resampled with soxr's HQ quality, no trimming, no loudness change).
//
// kInvalidArgument, with what to do, for a recording that no voice can come of: shorter than a
// second, longer than a minute, silent, not finite, or of an impossible rate or channel count.
Result<std::vector<float>> PrepareReference(const Recording& recording);

}  // namespace qtts

#endif  // QTTS_VOICE_REFERENCE_H_
