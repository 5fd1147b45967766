// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttswordtrack.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "gstqttstimeline.h"

namespace gstqtts {

using std::chrono::nanoseconds;

namespace {

// Returns the time of a place in the sound, in samples.
uint64_t TimeOf(double sample, int rate) {
  const double whole = std::floor(sample);
  const auto rest = static_cast<uint64_t>(std::llround((sample - whole) * 1e9 / rate));
  return SampleTime(static_cast<uint64_t>(whole), rate) + rest;
}

}  // namespace

// Returns the time for which the span's sound up to `time` is heard.
uint64_t SoundPlaces::Span::Into(uint64_t time) const {
  const uint64_t into = std::min(time, end) - begin;
  if (length == end - begin) return into;
  return static_cast<uint64_t>(
      std::llround(static_cast<double>(into) / static_cast<double>(end - begin) * static_cast<double>(length)));
}

void SoundPlaces::Append(const Span& span, std::vector<Span>* spans) {
  if (!spans->empty() && span.length == span.end - span.begin) {
    Span& last = spans->back();
    if (last.length == last.end - last.begin && span.begin == last.end &&
        span.moment.time == last.moment.time + last.length &&
        span.moment.running_time == last.moment.running_time + last.length) {
      last.end = span.end;
      last.length += span.length;
      return;
    }
  }
  spans->push_back(span);
}

void SoundPlaces::Add(const std::vector<SoundSpan>& spans, size_t samples, int rate, const Moment& moment) {
  size_t heard = 0;
  for (const SoundSpan& span : spans) {
    if (heard == samples) break;
    const size_t share = std::min(span.samples, samples - heard);
    if (share == 0) continue;  // it is too short to be heard
    const double end = share == span.samples ? span.end
                                             : span.begin + (span.end - span.begin) * static_cast<double>(share) /
                                                                static_cast<double>(span.samples);
    const uint64_t offset = SampleTime(heard, rate);
    heard += share;
    Append({TimeOf(span.begin, rate),
            TimeOf(end, rate),
            SampleTime(heard, rate) - offset,
            {moment.running_time + offset, moment.time + offset}},
           &spans_);
  }
}

void SoundPlaces::Plan(const std::vector<SoundSpan>& spans, int rate) {
  plan_.clear();
  size_t heard = 0;
  for (const SoundSpan& span : spans) {
    const uint64_t offset = SampleTime(heard, rate);
    heard += span.samples;
    Append({TimeOf(span.begin, rate), TimeOf(span.end, rate), SampleTime(heard, rate) - offset, {offset, offset}},
           &plan_);
  }
}

// Returns the last of the spans that begins at `time` or before; the first one if none does.
const SoundPlaces::Span& SoundPlaces::Find(const std::vector<Span>& spans, uint64_t time) {
  const auto after =
      std::upper_bound(spans.begin(), spans.end(), time, [](uint64_t t, const Span& span) { return t < span.begin; });
  return after == spans.begin() ? spans.front() : *std::prev(after);
}

Moment SoundPlaces::At(nanoseconds within) const {
  if (spans_.empty()) return {};
  const auto time = static_cast<uint64_t>(std::max(within, begin()).count());
  const Span& span = Find(spans_, time);
  const uint64_t into = span.Into(time);
  return {span.moment.running_time + into, span.moment.time + into};
}

Moment SoundPlaces::Expected(nanoseconds within) const {
  const Moment moment = At(within);
  if (spans_.empty() || within <= end()) return moment;
  const auto time = static_cast<uint64_t>(within.count());
  const auto known = static_cast<uint64_t>(end().count());
  uint64_t beyond = time - known;
  if (!plan_.empty()) {
    const auto planned = [this](uint64_t at) {
      const Span& span = Find(plan_, at);
      return span.moment.time + span.Into(std::max(at, span.begin));
    };
    beyond = planned(time) - planned(known);
  } else if (const Span& last = spans_.back(); last.length != last.end - last.begin && last.end > last.begin) {
    beyond = static_cast<uint64_t>(std::llround(
        static_cast<double>(beyond) / static_cast<double>(last.end - last.begin) * static_cast<double>(last.length)));
  }
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
