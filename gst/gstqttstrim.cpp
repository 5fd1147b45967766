// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttstrim.h"

#include <algorithm>
#include <cmath>

namespace gstqtts {

size_t LeadingSilenceTrimmer::Trim(std::vector<float>* pcm) {
  if (done_) return 0;
  const auto loud = std::find_if(pcm->begin(), pcm->end(), [](float x) { return std::abs(x) >= kThreshold; });
  auto silent = static_cast<size_t>(loud - pcm->begin());
  if (loud != pcm->end()) {
    done_ = true;
    const auto lead = static_cast<size_t>(kLead * rate_);
    const auto unit = static_cast<size_t>(kUnit * rate_);
    silent -= std::min(silent, lead);
    silent -= std::min(silent, (cut_ + silent) % unit);
  }
  const auto longest = static_cast<size_t>(kLongest * rate_);
  if (cut_ + silent >= longest) {
    done_ = true;
    silent = longest - cut_;
  }
  cut_ += silent;
  pcm->erase(pcm->begin(), pcm->begin() + static_cast<std::ptrdiff_t>(silent));
  return silent;
}

}  // namespace gstqtts
