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
  stamp.pts = time();
  position_ += samples;
  stamp.offset_end = position_;
  stamp.duration = time() - stamp.pts;
  stamp.discont = std::exchange(discont_, false);
  stamp.resync = std::exchange(leapt_, false);
  return stamp;
}

Stamp Timeline::Speech(uint64_t samples) {
  spoke_ = true;
  silent_samples_ = 0;
  return Next(samples);
}

Stamp Timeline::Silence(uint64_t samples) {
  silent_samples_ += samples;
  Stamp stamp = Next(samples);
  stamp.silence = true;
  return stamp;
}

uint64_t Timeline::MissingSilence(uint64_t leading, uint64_t gap) const {
  const uint64_t wanted = SamplesWithin(spoke_ ? gap : leading, rate_);
  return wanted > silent_samples_ ? wanted - silent_samples_ : 0;
}

void Timeline::Restart() {
  Break();
  position_ = anchor_time_ = anchor_position_ = 0;
  leapt_ = false;
}

void Timeline::Break() {
  discont_ = true;
  spoke_ = false;
  silent_samples_ = 0;
}

void Timeline::MoveTo(uint64_t time) {
  if (time <= this->time()) return;
  // The very first buffer is a discontinuity anyway, and no leap.
  leapt_ = position_ > 0;
  Break();
  anchor_time_ = time;
  anchor_position_ = position_;
}

}  // namespace gstqtts
