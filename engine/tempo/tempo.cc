// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/tempo.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace qtts {
namespace {

constexpr double kBlockSeconds = 0.015;
constexpr double kSearchSeconds = 0.0125;
// The last block has up to so many blocks' length: the rest that is left is never so short that its fade clicks.
constexpr double kLastBlocks = 1.25;
// Less is silence: no place in it is better than another.
constexpr double kLeastEnergy = 1e-9;

// Sums in a fixed order, so that all machines make the same sound, and in lanes that the compiler can vectorise.
double DotProduct(const float* a, const float* b, size_t count) {
  constexpr size_t kLanes = 8;
  std::array<float, kLanes> sums{};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  double sum = 0;
  for (const float lane : sums) sum += static_cast<double>(lane);
  for (; i < count; ++i) sum += static_cast<double>(a[i] * b[i]);
  return sum;
}

}  // namespace

Tempo::Tempo(int sample_rate)
    : block_(static_cast<size_t>(std::lround(kBlockSeconds * sample_rate))),
      search_(static_cast<size_t>(std::lround(kSearchSeconds * sample_rate))) {
  fade_in_.resize(block_);
  for (size_t i = 0; i < block_; ++i) {
    const double phase = (static_cast<double>(i) + 0.5) / static_cast<double>(block_);
    fade_in_[i] = static_cast<float>(0.5 - 0.5 * std::cos(std::numbers::pi * phase));
  }
}

void Tempo::SetRate(double rate) { rate_ = std::clamp(rate, kMinRate, kMaxRate); }

void Tempo::Put(std::span<const float> samples) { source_.insert(source_.end(), samples.begin(), samples.end()); }

size_t Tempo::Take(std::vector<float>* out) {
  const size_t before = out->size();
  while (MakeBlock(out)) Forget();
  return out->size() - before;
}

// Appends the next block. Returns false if more source is needed for it, or all is done. A block is only made where the
// last one can follow, whether or not the end is known yet: the output doesn't depend on that.
bool Tempo::MakeBlock(std::vector<float>* out) {
  const uint64_t end = source_samples();
  const double left = (static_cast<double>(end) - position_) / rate_;
  if (left < kLastBlocks * static_cast<double>(block_)) return finished_ && MakeLastBlock(out);
  const auto wanted = static_cast<uint64_t>(std::llround(position_));
  uint64_t latest = wanted + search_;
  if (std::max(latest, continuation_) + block_ > end) {
    if (!finished_) return false;
    if (end < block_) return MakeLastBlock(out);
    latest = std::min(latest, end - block_);
  }
  const uint64_t earliest = std::min(wanted > search_ ? wanted - search_ : 0, latest);
  const bool continues = continuation_ >= earliest && continuation_ <= latest;
  Append(continues ? continuation_ : BestPlace(earliest, latest), block_, out);
  position_ += static_cast<double>(block_) * rate_;
  return true;
}

// Appends the last samples of the source, as many as are left by the rate. A source that is shorter than what it
// becomes by one block has no period to repeat: silence follows it.
bool Tempo::MakeLastBlock(std::vector<float>* out) {
  const uint64_t end = source_samples();
  if (done_) return false;
  done_ = true;
  const auto left = static_cast<size_t>(std::max(0LL, std::llround((static_cast<double>(end) - position_) / rate_)));
  const auto samples = static_cast<size_t>(std::min<uint64_t>(left, end - source_begin_));
  if (samples > 0) Append(end - samples, samples, out);
  out->insert(out->end(), left - samples, 0.0F);
  position_ = static_cast<double>(end);
  return false;
}

// Returns the place from `earliest` to `latest` where the source resembles the continuation most.
uint64_t Tempo::BestPlace(uint64_t earliest, uint64_t latest) const {
  const auto count =
      static_cast<size_t>(std::min<uint64_t>(block_, source_samples() - std::min(source_samples(), continuation_)));
  const float* const reference = At(continuation_);
  uint64_t best = (earliest + latest) / 2;
  double best_score = 0;
  double energy = DotProduct(At(earliest), At(earliest), count);
  for (uint64_t place = earliest; place <= latest; ++place) {
    const float* const candidate = At(place);
    const double product = DotProduct(reference, candidate, count);
    // The square of the normalised correlation, with its sign.
    const double score = energy > kLeastEnergy ? product * std::abs(product) / energy : 0;
    if (score > best_score) {
      best = place;
      best_score = score;
    }
    energy += static_cast<double>(candidate[count] * candidate[count] - candidate[0] * candidate[0]);
  }
  return best;
}

// Appends `samples` from `place` on, to which the continuation fades.
void Tempo::Append(uint64_t place, size_t samples, std::vector<float>* out) {
  const float* const to = At(place);
  const uint64_t end = source_samples();
  const auto overlap =
      place == continuation_
          ? 0
          : static_cast<size_t>(std::min<uint64_t>({block_, samples, end - std::min(end, continuation_)}));
  for (size_t i = 0; i < overlap; ++i) {
    const double phase = (static_cast<double>(i) + 0.5) / static_cast<double>(overlap);
    const float weight =
        overlap == block_ ? fade_in_[i] : static_cast<float>(0.5 - 0.5 * std::cos(std::numbers::pi * phase));
    const float from = *At(continuation_ + i);
    out->push_back(from + weight * (to[i] - from));
  }
  out->insert(out->end(), to + overlap, to + samples);
  continuation_ = place + samples;
}

// Drops samples that no later block can reach.
void Tempo::Forget() {
  const uint64_t behind = 2 * block_ + search_;
  const uint64_t reached = std::min(static_cast<uint64_t>(position_), continuation_);
  const uint64_t keep = reached > behind ? reached - behind : 0;
  constexpr uint64_t kLeastDropped = 4096;  // moving what stays costs more than it saves for less
  if (keep < source_begin_ + kLeastDropped) return;
  source_.erase(source_.begin(), source_.begin() + static_cast<std::ptrdiff_t>(keep - source_begin_));
  source_begin_ = keep;
}

}  // namespace qtts
