// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/predictor.h"

#include <algorithm>

namespace qtts::cpu {

Predictor::Predictor(const PredictorConfig& config, const PredictorWeights& weights, const Embedder& embedder,
                     ThreadPool& pool, WeightPacker* packer)
    : embedder_(embedder), pool_(pool), transformer_(config.transformer, weights.transformer, pool, packer) {
  if (weights.input_projection.has_value()) input_projection_.emplace(*weights.input_projection, packer);
  WeightPacker* const head_packer = packer == nullptr ? nullptr : packer->eight_bits();
  for (const TensorView& head : weights.heads) heads_.emplace_back(head, head_packer);
}

void Predictor::Project(int64_t rows) {
  if (!input_projection_.has_value()) {
    inputs_ = embedded_;
    return;
  }
  inputs_.resize(static_cast<size_t>(rows * input_projection_->out()));
  input_projection_->Run(pool_, embedded_.data(), rows, inputs_.data());
}

void Predictor::Predict(std::span<const float> hidden, const SampleCode& sample, std::span<int32_t> codes) {
  const int64_t groups = code_groups();
  const auto rows = static_cast<int64_t>(codes.size()) / groups;
  const int64_t talker_width = embedder_.hidden_size();
  const int64_t width = transformer_.config().hidden_size;

  while (static_cast<int64_t>(caches_.size()) < rows) caches_.emplace_back(transformer_.config());
  sequences_.clear();
  for (int64_t r = 0; r < rows; ++r) {
    caches_[static_cast<size_t>(r)].Clear();
    sequences_.push_back({&caches_[static_cast<size_t>(r)], 2});
  }

  // The first pass runs positions 0 (the talker's state) and 1 (its code). Each later pass runs one code.
  embedded_.resize(static_cast<size_t>(2 * rows * talker_width));
  for (int64_t r = 0; r < rows; ++r) {
    float* const input = embedded_.data() + 2 * r * talker_width;
    std::copy_n(hidden.begin() + r * talker_width, talker_width, input);
    embedder_.LookUpCode(0, codes[static_cast<size_t>(r * groups)], input + talker_width);
  }
  last_.resize(static_cast<size_t>(rows * width));
  logits_.resize(static_cast<size_t>(rows * vocab_size()));
  for (int64_t group = 1; group < groups; ++group) {
    const int64_t positions = group == 1 ? 2 : 1;
    Project(rows * positions);
    transformer_.Forward(sequences_, inputs_.data());
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(inputs_.begin() + ((r + 1) * positions - 1) * width, width, last_.begin() + r * width);
    }
    heads_[static_cast<size_t>(group - 1)].Run(pool_, last_.data(), rows, logits_.data());

    embedded_.resize(static_cast<size_t>(rows * talker_width));
    for (int64_t r = 0; r < rows; ++r) {
      const auto row = static_cast<size_t>(r);
      const auto at = static_cast<size_t>(r * vocab_size());
      const int32_t code = sample(row, group, std::span(logits_).subspan(at, static_cast<size_t>(vocab_size())));
      codes[static_cast<size_t>(r * groups + group)] = code;
      embedder_.LookUpCode(group, code, embedded_.data() + r * talker_width);
      sequences_[row].rows = 1;
    }
  }
}

}  // namespace qtts::cpu
