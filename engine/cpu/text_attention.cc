// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/text_attention.h"

#include <algorithm>
#include <cmath>

#include "cpu/kernels.h"

namespace qtts::cpu {
namespace {

// Returns the logarithm of the sum of exp(score).
double LogSum(std::span<const float> scores) {
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (const float score : scores) sum += std::exp(score - static_cast<float>(largest));
  return largest + std::log(sum);
}

}  // namespace

int64_t ScorePositions(const KvCache& cache, const TransformerConfig& config, const QueryHead& head,
                       std::span<const float> query, std::vector<float>* scores) {
  const int64_t row = cache.length() - 1;
  std::vector<KeyValueSpan> spans;
  cache.Visible(head.layer, head.head / (config.num_heads / config.num_kv_heads), row, &spans);
  int64_t count = 0;
  for (const KeyValueSpan& span : spans) count += span.count;
  scores->resize(static_cast<size_t>(count));
  float* to = scores->data();
  for (const KeyValueSpan& span : spans) {
    const MatrixView keys{DType::kF32, span.keys, span.count, config.head_dim};
    MatMul(keys, nullptr, query.data(), 1, 0, span.count, to);
    to += span.count;
  }
  const float scale = 1.0F / std::sqrt(static_cast<float>(config.head_dim));
  for (float& score : *scores) score *= scale;
  return row + 1 - count;
}

TextScores ScoreText(const KvCache& cache, const TransformerConfig& config, const QueryHead& head,
                     std::span<const float> query, const TextWindow& window) {
  const int64_t text_end = std::min<int64_t>(window.text_end, cache.length());
  if (!window.wanted() || window.begin < window.text_begin || window.begin >= text_end) return {};
  std::vector<float> all;
  const int64_t first = ScorePositions(cache, config, head, query, &all);
  if (window.text_begin < first) return {};  // a sliding window has passed the text's beginning
  const std::span<const float> scores(all);
  const auto part = [&](int64_t begin, int64_t end) {
    return scores.subspan(static_cast<size_t>(begin - first), static_cast<size_t>(end - begin));
  };
  TextScores result;
  const double text = LogSum(part(window.text_begin, text_end));
  result.log_sum = static_cast<float>(text);
  result.mass = static_cast<float>(std::min(1.0, std::exp(text - LogSum(scores))));
  const auto own = part(window.begin, std::min<int64_t>(text_end, window.begin + kTextScores));
  result.scores.assign(own.begin(), own.end());
  return result;
}

}  // namespace qtts::cpu
