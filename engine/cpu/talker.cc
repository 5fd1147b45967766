// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/talker.h"

#include <algorithm>

namespace qtts::cpu {
namespace {

// Prompt rows per chunk: enough to amortise the reads of the weights, few enough to keep scratch small.
constexpr int64_t kPrefillRows = 128;

}  // namespace

Talker::Talker(const TalkerConfig& config, const TalkerWeights& weights, ThreadPool& pool, WeightPacker* packer)
    : pool_(pool),
      transformer_(config.transformer, weights.transformer, pool, packer),
      head_(weights.codec_head, packer == nullptr ? nullptr : packer->eight_bits()) {}

void Talker::Prefill(KvCache* cache, std::span<const float> inputs) { RunRows(cache, inputs, nullptr); }

void Talker::RunRows(KvCache* cache, std::span<const float> inputs, float* queries) {
  const int64_t width = hidden_size();
  const int64_t rows = static_cast<int64_t>(inputs.size()) / width;
  int64_t count = 0;
  for (int64_t begin = 0; begin < rows; begin += count) {
    count = std::min(kPrefillRows, rows - begin);
    chunk_.assign(inputs.begin() + begin * width, inputs.begin() + (begin + count) * width);
    const SequenceRows sequence{cache, count, begin + count == rows ? queries : nullptr};
    transformer_.Forward({&sequence, 1}, chunk_.data());
  }
}

void Talker::Prefill(KvCache* cache, std::span<const float> inputs, float* hidden, float* logits, float* queries) {
  RunRows(cache, inputs, queries);
  const int64_t width = hidden_size();
  std::copy_n(chunk_.end() - width, width, hidden);
  head_.Run(pool_, hidden, 1, logits);
}

void Talker::Step(std::span<KvCache* const> caches, float* inputs, float* logits, float* queries) {
  std::vector<SequenceRows> sequences;
  sequences.reserve(caches.size());
  for (KvCache* cache : caches) {
    sequences.push_back({cache, 1, queries});
    if (queries != nullptr) queries += query_size();
  }
  transformer_.Forward(sequences, inputs);
  head_.Run(pool_, inputs, static_cast<int64_t>(caches.size()), logits);
}

}  // namespace qtts::cpu
