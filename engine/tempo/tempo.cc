// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/tempo.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace qtts {
namespace {

// Seconds of a block at a rate; in between they are interpolated. Lengths by measurement (doc/pace.md). At rate 2 what
// is left out between two short blocks is short beside a consonant; at 0.75 short blocks repeat less at a time.
struct BlockAtRate {
  double rate;
  double seconds;
};
constexpr std::array<BlockAtRate, 5> kBlocks{
    {{0.5, 0.064 / 3}, {0.75, 0.017}, {1, 0.064 / 3}, {1.5, 0.064 / 3}, {2, 0.016}}};
// The last block has up to so many blocks' length: the rest that is left is never so short that its fade clicks.
constexpr double kLastBlocks = 1.25;
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

// Returns the samples of a block at a rate.
size_t BlockSamples(int sample_rate, double rate) {
  double seconds = kBlocks.front().seconds;
  for (size_t i = 1; i < kBlocks.size(); ++i) {
    const double part = (rate - kBlocks[i - 1].rate) / (kBlocks[i].rate - kBlocks[i - 1].rate);
    if (part > 0) seconds = std::lerp(kBlocks[i - 1].seconds, kBlocks[i].seconds, std::min(part, 1.0));
  }
  return static_cast<size_t>(std::lround(seconds * sample_rate));
}

}  // namespace

Tempo::Tempo(int sample_rate) : sample_rate_(sample_rate) { SetRate(1); }

void Tempo::SetRate(double rate) {
  rate_ = std::clamp(rate, kMinRate, kMaxRate);
  const size_t block = BlockSamples(sample_rate_, rate_);
  if (block == block_) return;
  block_ = block;
  fade_in_.resize(block_);
  for (size_t i = 0; i < block_; ++i) {
    const double phase = (static_cast<double>(i) + 0.5) / static_cast<double>(block_);
    fade_in_[i] = static_cast<float>(0.5 - 0.5 * std::cos(std::numbers::pi * phase));
  }
}

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
  if (continuation_ == 0 || rate_ == 1) {
    if (continuation_ + block_ > end) return finished_ && MakeLastBlock(out);
    Append(continuation_, block_, out);
  } else {
    // All that is compared is there, or no more comes.
    const auto next = static_cast<uint64_t>(continuation_ + std::llround(static_cast<double>(block_) * (rate_ - 1)));
    if (!finished_ && std::max(next + block_, continuation_) + block_ > end) return false;
    if (end < 2 * block_) return MakeLastBlock(out);
    Append(BestPlace(next), block_, out);
  }
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

// Returns the place of the next block. `next` is the place by the rate, counted from the block before.
//
// A candidate is laid over the block before, and its following one, at each lag: its score is the correlation of both
// where they overlap. A parabola over the lags keeps steps even: it prefers places near `next`, or rather near the
// place where the sound has to be by the rate from its beginning on, towards which each step goes by a part of the way.
// The correlation is not normalised, since it is worse to repeat or to leave out loud sound than quiet one.
uint64_t Tempo::BestPlace(uint64_t next) const {
  const auto block = static_cast<int64_t>(block_);
  const auto end = static_cast<int64_t>(source_samples());
  const int64_t before = static_cast<int64_t>(continuation_) - block;
  const auto to = static_cast<int64_t>(next);
  const double behind = (position_ - static_cast<double>(next)) / rate_ + static_cast<double>(block) * (1 - 1 / rate_);
  const int64_t drift = std::llround(behind);
  // The block before may have been the first one, and shorter: of a higher rate.
  const int64_t first = std::clamp<int64_t>(-drift, std::max<int64_t>(0, -before), 2 * block);
  // No clamp(): `first` may be above the limit, and then there is no candidate.
  const int64_t last = std::min(std::max(2 * block - drift, first), 2 * block - block / 8);
  int64_t best = (first + last) / 2;
  double best_score = 0;
  for (int64_t lag = first; lag < last; ++lag) {
    const int64_t overlap = std::min({2 * block - lag, end - (before + lag), end - to});
    if (overlap <= 0) continue;
    const double weight =
        static_cast<double>(drift + lag) * static_cast<double>(lag - first) * static_cast<double>(last - lag);
    const double score =
        weight * DotProduct(At(static_cast<uint64_t>(before + lag)), At(next), static_cast<size_t>(overlap));
    if (score > best_score) {
      best = lag;
      best_score = score;
    }
  }
  return static_cast<uint64_t>(
      std::clamp<int64_t>(to + block - best, static_cast<int64_t>(source_begin_), end - block));
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
  const uint64_t behind = 3 * block_;
  const uint64_t reached = std::min(static_cast<uint64_t>(position_), continuation_);
  const uint64_t keep = reached > behind ? reached - behind : 0;
  constexpr uint64_t kMinDropped = 4096;  // moving what stays costs more than it saves for less
  if (keep < source_begin_ + kMinDropped) return;
  source_.erase(source_.begin(), source_.begin() + static_cast<std::ptrdiff_t>(keep - source_begin_));
  source_begin_ = keep;
}

}  // namespace qtts
