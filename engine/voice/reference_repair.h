// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_VOICE_REFERENCE_REPAIR_H_
#define QTTS_VOICE_REFERENCE_REPAIR_H_

#include <string>
#include <vector>

#include "qtts/status.h"

namespace qtts {

// Implements CloneOptions::prepare on mono samples at kReferenceRate. Returns what was done, a phrase each.
//
// 1. Silence in front is cut to 0.1 s, more than 0.3 s of silence at the end to 0.2 s.
// 2. Without a transcript, more than kMaxGoodSeconds is cut at the last pause before. With one nothing is cut, since
// the
//    transcript would not fit any more.
// 3. An end within a sound is cut back to the last pause, without a transcript; with one, or if there is no pause, it
// is
//    faded and 0.25 s of silence is appended. Each end that was changed has a fade of 20 ms.
// 4. The level becomes -23 LUFS, if its peak stays below -1 dB of full scale.
//
// Noise and clipping are left as they are. kInvalidArgument if less than a second is left.
Result<std::vector<std::string>> RepairReference(bool has_text, std::vector<float>* pcm);

}  // namespace qtts

#endif  // QTTS_VOICE_REFERENCE_REPAIR_H_
