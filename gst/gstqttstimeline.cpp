// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttstimeline.h"

#include <utility>

namespace gstqtts {
namespace {
constexpr uint64_t kSecond = 1'000'000'000;
}

// Both split off the whole seconds first, so that no product overflows.
uint64_t SampleTime(uint64_t sample, int rate) {
  const auto r = static_cast<uint64_t>(rate);
  return sample / r * kSecond + sample % r * kSecond / r;
}

uint64_t SamplesWithin(uint64_t duration, int rate) {
  const auto r = static_cast<uint64_t>(rate);
  return duration / kSecond * r + duration % kSecond * r / kSecond;
}

Stamp Timeline::Next(uint64_t samples) {
  Stamp stamp;
  stamp.offset = position_;
  position_ += samples;
  stamp.offset_end = position_;
  stamp.pts = SampleTime(stamp.offset, rate_);
  stamp.duration = SampleTime(stamp.offset_end, rate_) - stamp.pts;
  stamp.discont = std::exchange(discont_, false);
  return stamp;
}

void Timeline::Restart() {
  position_ = 0;
  discont_ = true;
}

}  // namespace gstqtts
