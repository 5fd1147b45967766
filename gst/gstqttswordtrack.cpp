// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttswordtrack.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "gstqttstimeline.h"

namespace gstqtts {

using std::chrono::nanoseconds;

void SoundPlaces::Add(uint64_t sample, uint64_t samples, int rate, const Moment& moment) {
  const Span span = {SampleTime(sample, rate), SampleTime(sample + samples, rate), moment};
  if (!spans_.empty()) {
    Span& last = spans_.back();
    const uint64_t length = last.end - last.begin;
    if (span.begin == last.end && moment.time == last.moment.time + length &&
        moment.running_time == last.moment.running_time + length) {
      last.end = span.end;
      return;
    }
  }
  spans_.push_back(span);
}

Moment SoundPlaces::At(nanoseconds within) const {
  if (spans_.empty()) return {};
  const auto time = static_cast<uint64_t>(std::max(within, begin()).count());
  const auto after =
      std::upper_bound(spans_.begin(), spans_.end(), time, [](uint64_t t, const Span& span) { return t < span.begin; });
  const Span& span = *std::prev(after);
  const uint64_t into = std::min(time, span.end) - span.begin;
  return {span.moment.running_time + into, span.moment.time + into};
}

Moment SoundPlaces::Expected(nanoseconds within) const {
  const Moment moment = At(within);
  const auto beyond = static_cast<uint64_t>(std::max(nanoseconds(0), within - end()).count());
  return {moment.running_time + beyond, moment.time + beyond};
}

nanoseconds SoundPlaces::begin() const {
  return nanoseconds(spans_.empty() ? 0 : static_cast<int64_t>(spans_.front().begin));
}

nanoseconds SoundPlaces::end() const {
  return nanoseconds(spans_.empty() ? 0 : static_cast<int64_t>(spans_.back().end));
}

void WordTrack::Add(const TimedWord& word, bool goes_on) {
  if (word.end <= word.begin || word.end <= told_) return;
  if (!words_.empty() && word.begin < words_.back().end) {
    TimedWord& last = words_.back();
    last.end = std::max(last.end, word.end);
    last.duration = std::max(last.stop(), word.stop()) - last.start;
  } else {
    TimedWord next = word;
    next.begin = std::max(next.begin, told_);
    const nanoseconds earliest = words_.empty() ? last_.start : words_.back().start;
    if (next.start < earliest) {
      next.duration = std::max(nanoseconds(0), next.stop() - earliest);
      next.start = earliest;
    }
    words_.push_back(next);
  }
  held_ = goes_on;
}

void WordTrack::SkipTo(size_t end) {
  told_ = std::max(told_, end);
  while (!words_.empty() && words_.front().end <= told_) words_.pop_front();
}

std::vector<TimedWord> WordTrack::Take(nanoseconds sounded) {
  std::vector<TimedWord> taken;
  while (!words_.empty() && words_.front().start < sounded && !(held_ && words_.size() == 1)) {
    last_ = words_.front();
    words_.pop_front();
    told_ = last_.end;
    taken.push_back(last_);
  }
  return taken;
}

nanoseconds WordTrack::known_until(nanoseconds sounded) const {
  return std::min(sounded, words_.empty() ? last_.stop() : words_.front().start);
}

size_t WordTrack::SpokenAt(nanoseconds sounded) const {
  const TimedWord& word = !words_.empty() && words_.front().start < sounded ? words_.front() : last_;
  if (word.duration.count() <= 0 || sounded >= word.stop()) return word.end;
  const double share = static_cast<double>((sounded - word.start).count()) / static_cast<double>(word.duration.count());
  return word.begin + static_cast<size_t>(std::lround(share * static_cast<double>(word.end - word.begin)));
}

}  // namespace gstqtts
