// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsshaper.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gstqtts {
namespace {

// Longest sound that leaves at once: the length of a frame.
constexpr double kPieceSeconds = 0.08;
// Silence that stays behind the last sound of speech that is fitted into a slot.
constexpr double kFittedTail = 0.02;

// Returns a place in sound whose rate is changed without the errors of the sums that led to it.
double ExactPlace(double place) {
  constexpr double kLargestError = 1e-4;  // of a sample; less than a hundredth of it comes up in an hour
  const double sample = std::round(place);
  return std::abs(place - sample) < kLargestError ? sample : place;
}

}  // namespace

SoundShaper::SoundShaper(int sample_rate, const Options& options)
    : sample_rate_(sample_rate),
      max_samples_(static_cast<size_t>(std::lround(kPieceSeconds * sample_rate))),
      trimmer_(sample_rate),
      fitting_(options.fit) {
  trimmer_.Restart(options.trim);
  if (options.max_silence > 0) limiter_.emplace(sample_rate, options.max_silence);
}

void SoundShaper::SetRate(double rate) {
  rate_ = rate;
  if (rate != 1 && !tempo_) tempo_.emplace(sample_rate_);
  if (tempo_) tempo_->SetRate(rate);
}

void SoundShaper::Put(std::vector<float> pcm) {
  const size_t cut = trimmer_.Trim(&pcm);
  trimmed_ += cut;
  place_ += cut;
  if (pcm.empty()) return;
  std::vector<qtts::KeptRun> runs;
  const uint64_t begin = std::exchange(place_, place_ + pcm.size());
  if (!limiter_) {
    runs.push_back({begin, pcm.size()});
    return Add(std::move(pcm), runs);
  }
  std::vector<float> kept;
  limiter_->Put(pcm, &kept, &runs);
  // Its places begin with the first sample that was not trimmed.
  for (qtts::KeptRun& run : runs) run.begin += trimmed_;
  Add(std::move(kept), runs);
}

void SoundShaper::Finish() {
  if (finished_) return;
  finished_ = true;
  if (limiter_) {
    std::vector<float> kept;
    std::vector<qtts::KeptRun> runs;
    limiter_->Finish(&kept, &runs);
    for (qtts::KeptRun& run : runs) run.begin += trimmed_;
    Add(std::move(kept), runs);
  }
  if (tempo_ && !fitting_) {
    tempo_->Finish();
    TakeFromTempo();
  }
}

void SoundShaper::Fit(uint64_t slot, double max_compression) {
  fitting_ = false;
  std::vector<float> speech = std::exchange(held_, {});
  std::vector<qtts::KeptRun> runs = std::exchange(held_runs_, {});
  const auto loud = std::find_if(speech.rbegin(), speech.rend(),
                                 [](float sample) { return std::abs(sample) >= LeadingSilenceTrimmer::kThreshold; });
  const auto tail = static_cast<size_t>(std::lround(kFittedTail * sample_rate_));
  const size_t audible = std::min(speech.size(), static_cast<size_t>(speech.rend() - loud) + tail);
  const double room = static_cast<double>(slot);
  if (static_cast<double>(speech.size()) > room * rate_) {
    const double wanted = slot > 0 ? static_cast<double>(audible) / room : qtts::Tempo::kMaxRate;
    SetRate(std::min(std::clamp(wanted, rate_, rate_ * max_compression), qtts::Tempo::kMaxRate));
    const size_t left = std::max(audible, static_cast<size_t>(std::min(room * rate_, 1e15)));
    if (left < speech.size()) {
      speech.resize(left);
      const size_t fade = std::min(tail, left);
      for (size_t i = 0; i < fade; ++i) speech[left - 1 - i] *= static_cast<float>(i) / static_cast<float>(fade);
    }
  }
  // In pieces of a frame, as all sound leaves.
  for (size_t taken = 0; taken < speech.size(); taken += max_samples_) {
    const size_t count = std::min(max_samples_, speech.size() - taken);
    std::vector<float> piece(speech.begin() + static_cast<std::ptrdiff_t>(taken),
                             speech.begin() + static_cast<std::ptrdiff_t>(taken + count));
    std::vector<qtts::KeptRun> places;
    for (size_t left = count; left > 0;) {
      qtts::KeptRun& first = runs.front();
      const size_t share = std::min(left, first.samples);
      places.push_back({first.begin, share});
      left -= share;
      first.begin += share;
      first.samples -= share;
      if (first.samples == 0) runs.erase(runs.begin());
    }
    Add(std::move(piece), places);
  }
  if (finished_ && tempo_) {
    tempo_->Finish();
    TakeFromTempo();
  }
}

// Adds samples that stay, with their places.
void SoundShaper::Add(std::vector<float> kept, const std::vector<qtts::KeptRun>& runs) {
  if (kept.empty()) return;
  if (fitting_) {
    held_.insert(held_.end(), kept.begin(), kept.end());
    held_runs_.insert(held_runs_.end(), runs.begin(), runs.end());
    return;
  }
  if (tempo_) {
    in_tempo_.insert(in_tempo_.end(), runs.begin(), runs.end());
    tempo_->Put(kept);
    return TakeFromTempo();
  }
  std::vector<SoundSpan> spans;
  spans.reserve(runs.size());
  for (const qtts::KeptRun& run : runs) {
    spans.push_back({static_cast<double>(run.begin), static_cast<double>(run.begin + run.samples), run.samples});
  }
  if (limiter_) return Push(std::move(kept), std::move(spans));  // with a silence it may be longer than a frame
  ready_.push_back({std::move(kept), std::move(spans)});
}

void SoundShaper::TakeFromTempo() {
  std::vector<float> out;
  if (tempo_->Take(&out) == 0) return;
  std::vector<SoundSpan> spans = TakeSpans(ExactPlace(tempo_->position()), out.size());
  Push(std::move(out), std::move(spans));
}

// Returns the places of the samples of `tempo_` from the last call to `until`, which are heard in `samples` samples.
std::vector<SoundSpan> SoundShaper::TakeSpans(double until, size_t samples) {
  std::vector<SoundSpan> spans;
  const double from = std::exchange(spanned_, until);
  size_t given = 0;
  while (!in_tempo_.empty()) {
    const qtts::KeptRun run = in_tempo_.front();
    const auto run_begin = static_cast<double>(in_tempo_begin_);
    const double run_end = run_begin + static_cast<double>(run.samples);
    const double begin = std::max(from, run_begin);
    const double end = std::min(until, run_end);
    if (end > begin) {
      // Shares are rounded so that they add up.
      const double share = until > from ? (end - from) / (until - from) : 1;
      const auto reached = static_cast<size_t>(std::llround(share * static_cast<double>(samples)));
      const double offset = static_cast<double>(run.begin) - run_begin;
      spans.push_back({begin + offset, end + offset, reached - given});
      given = reached;
    }
    if (run_end > until) break;
    in_tempo_begin_ += run.samples;
    in_tempo_.pop_front();
  }
  if (!spans.empty()) spans.back().samples += samples - given;
  return spans;
}

// Makes `pcm` ready, in pieces.
void SoundShaper::Push(std::vector<float> pcm, std::vector<SoundSpan> spans) {
  if (pcm.size() <= max_samples_) {
    ready_.push_back({std::move(pcm), std::move(spans)});
    return;
  }
  size_t next = 0;  // the span that the next sample is in
  for (size_t taken = 0; taken < pcm.size(); taken += max_samples_) {
    const size_t count = std::min(max_samples_, pcm.size() - taken);
    ShapedSound sound;
    sound.pcm.assign(pcm.begin() + static_cast<std::ptrdiff_t>(taken),
                     pcm.begin() + static_cast<std::ptrdiff_t>(taken + count));
    for (size_t left = count; left > 0 && next < spans.size();) {
      SoundSpan& span = spans[next];
      if (span.samples <= left) {
        sound.spans.push_back(span);
        left -= span.samples;
        ++next;
        continue;
      }
      const double middle =
          span.begin + (span.end - span.begin) * static_cast<double>(left) / static_cast<double>(span.samples);
      sound.spans.push_back({span.begin, middle, left});
      span = {middle, span.end, span.samples - left};
      left = 0;
    }
    ready_.push_back(std::move(sound));
  }
}

ShapedSound SoundShaper::Take() {
  ShapedSound sound = std::move(ready_.front());
  ready_.pop_front();
  return sound;
}

std::vector<SoundSpan> SoundShaper::ReadySpans() const {
  std::vector<SoundSpan> spans;
  for (const ShapedSound& sound : ready_) spans.insert(spans.end(), sound.spans.begin(), sound.spans.end());
  return spans;
}

}  // namespace gstqtts
