// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/runaway_guard.h"

#include <algorithm>
#include <cmath>

namespace qtts {
namespace {

constexpr float kSilence = 1e-3F;

}  // namespace

bool RunawayGuard::Trips(std::span<const float> pcm, size_t text_tokens, int64_t frames_per_token) {
  ++frames_;
  const bool silent = std::all_of(pcm.begin(), pcm.end(), [](float sample) { return std::fabs(sample) < kSilence; });
  silent_ = silent ? silent_ + 1 : 0;
  return silent_ >= kSilentFrames || frames_ > MostFrames(text_tokens, frames_per_token);
}

}  // namespace qtts
