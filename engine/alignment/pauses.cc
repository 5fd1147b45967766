// SPDX-License-Identifier: LGPL-2.1-or-later
#include "alignment/pauses.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace qtts {
namespace {

constexpr float kBelowPeak = 25;  // dB
constexpr float kFloor = -70;     // dB
constexpr float kDecay = 0.03F;   // dB a hop
constexpr float kNoPower = 1e-12F;

// Lanes let the compiler use vectors; the order of the sum is the same everywhere.
float SumOfSquares(std::span<const float> samples) {
  constexpr size_t kLanes = 8;
  std::array<float, kLanes> sums{};
  size_t i = 0;
  for (; i + kLanes <= samples.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += samples[i + lane] * samples[i + lane];
  }
  for (; i < samples.size(); ++i) sums[0] += samples[i] * samples[i];
  float sum = 0;
  for (const float lane : sums) sum += lane;
  return sum;
}

}  // namespace

void Pauses::Add(std::span<const float> pcm) {
  while (!pcm.empty()) {
    const auto count = std::min(pcm.size(), static_cast<size_t>(hop_samples_ - filled_));
    squares_ += SumOfSquares(pcm.first(count));
    filled_ += static_cast<int>(count);
    pcm = pcm.subspan(count);
    if (filled_ < hop_samples_) return;
    AddHop(squares_ / static_cast<float>(hop_samples_));
    squares_ = 0;
    filled_ = 0;
  }
}

void Pauses::AddHop(float mean_square) {
  const float level = 10 * std::log10(mean_square + kNoPower);
  peak_ = std::max(level, peak_ - kDecay);
  const bool silent = level < std::max(peak_ - kBelowPeak, kFloor);
  if (runs_.empty() || runs_.back().silent != silent) runs_.push_back({hops_, hops_, silent});
  runs_.back().end = ++hops_;
}

std::optional<Pauses::Silence> Pauses::Next(double time) const {
  for (size_t i = 0; i < runs_.size(); ++i) {
    const Run& run = runs_[i];
    const bool open = i + 1 == runs_.size();
    if (!run.silent || run.end - run.begin < kMinHops) continue;
    if (!open && static_cast<double>(run.end) * kHop <= time) continue;
    Silence silence{static_cast<double>(run.begin) * kHop, std::nullopt};
    if (!open) silence.end = static_cast<double>(run.end) * kHop;
    return silence;
  }
  return std::nullopt;
}

std::optional<double> Pauses::FirstSound(double time) const {
  for (const Run& run : runs_) {
    if (!run.silent && static_cast<double>(run.end) * kHop > time) {
      return std::max(time, static_cast<double>(run.begin) * kHop);
    }
  }
  return std::nullopt;
}

double Pauses::decided() const {
  if (finished_ || runs_.empty() || !runs_.back().silent) return known();
  const Run& last = runs_.back();
  return last.end - last.begin >= kMinHops ? known() : static_cast<double>(last.begin) * kHop;
}

void Pauses::Forget(double time) {
  while (runs_.size() > 1 && static_cast<double>(runs_.front().end) * kHop < time) runs_.pop_front();
}

}  // namespace qtts
