// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/silence_limiter.h"

#include <algorithm>
#include <cmath>

namespace qtts {

SilenceLimiter::SilenceLimiter(int sample_rate, uint64_t maximum)
    : block_size_(static_cast<size_t>(std::lround(kBlockSeconds * sample_rate))),
      maximum_(std::max<uint64_t>(maximum, 2 * block_size_)) {}

void SilenceLimiter::Put(std::span<const float> samples, std::vector<float>* kept, std::vector<KeptRun>* runs) {
  if (!rest_.empty()) {
    const size_t missing = std::min(block_size_ - rest_.size(), samples.size());
    rest_.insert(rest_.end(), samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(missing));
    samples = samples.subspan(missing);
    if (rest_.size() < block_size_) return;
    AddBlock(rest_, kept, runs);
    rest_.clear();
  }
  for (; samples.size() >= block_size_; samples = samples.subspan(block_size_)) {
    AddBlock(samples.first(block_size_), kept, runs);
  }
  rest_.assign(samples.begin(), samples.end());
}

void SilenceLimiter::Finish(std::vector<float>* kept, std::vector<KeptRun>* runs) {
  if (!rest_.empty()) AddBlock(rest_, kept, runs);
  rest_.clear();
  if (fading_.empty()) return;
  for (size_t i = 0; i < fading_.size(); ++i) {
    fading_[i] *= 1 - static_cast<float>(i + 1) / static_cast<float>(fading_.size());
  }
  Keep(fading_, fading_begin_, kept, runs);
  fading_.clear();
}

void SilenceLimiter::AddBlock(std::span<const float> block, std::vector<float>* kept, std::vector<KeptRun>* runs) {
  const uint64_t begin = place_;
  place_ += block.size();
  if (std::ranges::all_of(block, [](float sample) { return std::abs(sample) < kSilencePeak; })) {
    if (fading_.empty() && silent_ + 2 * block_size_ <= maximum_) {
      silent_ += block.size();
      return Keep(block, begin, kept, runs);
    }
    if (fading_.empty()) {
      fading_.assign(block.begin(), block.end());
      fading_begin_ = begin;
    }
    // A shorter one is the end of the source, which no sound follows.
    if (block.size() == block_size_) {
      dropped_.assign(block.begin(), block.end());
      dropped_begin_ = begin;
    }
    return;
  }
  if (!fading_.empty()) {
    for (size_t i = 0; i < fading_.size(); ++i) {
      const float weight = static_cast<float>(i + 1) / static_cast<float>(fading_.size());
      fading_[i] += weight * (dropped_[i] - fading_[i]);
    }
    Keep(fading_, dropped_begin_, kept, runs);
    fading_.clear();
  }
  silent_ = 0;
  Keep(block, begin, kept, runs);
}

void SilenceLimiter::Keep(std::span<const float> samples, uint64_t begin, std::vector<float>* kept,
                          std::vector<KeptRun>* runs) {
  kept->insert(kept->end(), samples.begin(), samples.end());
  if (!runs->empty() && runs->back().begin + runs->back().samples == begin) {
    runs->back().samples += samples.size();
  } else {
    runs->push_back({begin, samples.size()});
  }
}

}  // namespace qtts
