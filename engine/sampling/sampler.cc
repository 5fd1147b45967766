// SPDX-License-Identifier: LGPL-2.1-or-later
#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "sampling/philox.h"

namespace qtts {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// Number of control ids at the end of the talker's codec table (spec 6).
constexpr int kControlIds = 1024;

// The official rules suppress the end until an utterance has this many ids.
constexpr int64_t kMinIds = 2;

// Removes logits below the k-th largest. Ties with it stay.
void KeepTopK(std::span<float> logits, int k) {
  if (k <= 0 || static_cast<size_t>(k) >= logits.size()) return;
  std::vector<float> sorted(logits.begin(), logits.end());
  const auto threshold = sorted.begin() + (k - 1);
  std::nth_element(sorted.begin(), threshold, sorted.end(), std::greater<>());
  for (float& logit : logits) {
    if (logit < *threshold) logit = kNever;
  }
}

// Removes the least likely ids while their probabilities sum to at most 1 - p. One id always stays. Among equals the
// lower ids are removed first.
void KeepTopP(std::span<float> logits, float p) {
  if (p >= 1.0F) return;
  std::vector<uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return logits[a] < logits[b]; });
  const double largest = logits[order.back()];
  double total = 0;
  for (const float logit : logits) total += std::exp(logit - largest);
  double cumulative = 0;
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    float& logit = logits[order[i]];
    cumulative += std::exp(logit - largest) / total;
    if (cumulative > 1.0 - static_cast<double>(p)) break;
    logit = kNever;
  }
}

}  // namespace

int32_t SampleToken(std::span<float> logits, const TokenSampling& sampling, const DrawPosition& position) {
  bool possible = false;
  for (const float logit : logits) {
    if (std::isnan(logit) || logit == std::numeric_limits<float>::infinity()) return kNoToken;
    possible = possible || logit != kNever;
  }
  if (!possible) return kNoToken;

  if (!sampling.do_sample) {
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  if (sampling.temperature != 1.0F) {
    // The maximum is subtracted first: otherwise a tiny temperature could make several logits infinite, hence equal.
    const float largest = *std::max_element(logits.begin(), logits.end());
    for (float& logit : logits) logit = (logit - largest) / sampling.temperature;
  }
  KeepTopK(logits, sampling.top_k);
  KeepTopP(logits, sampling.top_p);

  int32_t best = kNoToken;
  double best_score = 0;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (logits[id] == kNever) continue;
    const double u = UnitInterval(
        DrawBits(position.seed, position.frame, position.codebook, static_cast<uint32_t>(id), DrawPurpose::kGumbel));
    const double score = logits[id] - std::log(-std::log(u));
    if (best == kNoToken || score > best_score) {
      best = static_cast<int32_t>(id);
      best_score = score;
    }
  }
  return best;
}

TalkerSampler::TalkerSampler(int vocab_size, int eos_id, const GenerationSettings& settings, uint64_t seed)
    : eos_id_(eos_id), settings_(settings), seed_(seed), chosen_(static_cast<size_t>(vocab_size)) {}

int32_t TalkerSampler::Sample(std::span<float> logits) {
  if (const float penalty = settings_.repetition_penalty; penalty != 1.0F) {
    for (size_t id = 0; id < logits.size(); ++id) {
      if (chosen_[id]) logits[id] = logits[id] < 0 ? logits[id] * penalty : logits[id] / penalty;
    }
  }
  // A NaN must reach SampleToken(), even if the rules below would overwrite it.
  const auto forbid = [&](size_t id) {
    if (!std::isnan(logits[id])) logits[id] = kNever;
  };
  const auto eos = static_cast<size_t>(eos_id_);
  if (count_ < kMinIds) forbid(eos);
  const size_t first_control = logits.size() - std::min<size_t>(kControlIds, logits.size());
  for (size_t id = first_control; id < logits.size(); ++id) {
    if (id != eos) forbid(id);
  }

  const int32_t id = SampleToken(logits, settings_.talker, {seed_, static_cast<uint32_t>(count_), 0});
  if (id != kNoToken) {
    chosen_[static_cast<size_t>(id)] = true;
    ++count_;
  }
  return id;
}

}  // namespace qtts
