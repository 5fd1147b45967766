// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/embedder.h"

#include <algorithm>
#include <string>

#include "cpu/kernels.h"

namespace qtts::cpu {
namespace {

// Number of cached text projections. Pad, begin and end are always among the recent ones.
constexpr size_t kKeptProjections = 256;

}  // namespace

Embedder::Embedder(const TalkerWeights& talker, const PredictorWeights& predictor, ThreadPool& pool)
    : pool_(pool),
      text_table_(MatrixOf(talker.text_embedding)),
      text_fc1_(talker.text_fc1),
      text_fc2_(talker.text_fc2),
      code_row_(static_cast<size_t>(text_fc2_.out())) {
  code_tables_.push_back(MatrixOf(talker.codec_embedding));
  for (const TensorView& table : predictor.embeddings) code_tables_.push_back(MatrixOf(table));
}

void Embedder::Embed(std::span<const PromptRow> rows, std::span<const float> x_vector, float* y) {
  ProjectTexts(rows);
  const int64_t hidden = hidden_size();
  for (const PromptRow& row : rows) {
    std::fill_n(y, hidden, 0.0F);
    // Codes first, text last, as in the reference: sums of more than two terms round differently in another order.
    for (size_t group = 0; group < row.codes.size(); ++group) {
      LookUpCode(static_cast<int64_t>(group), row.codes[group], code_row_.data());
      Add(code_row_.data(), hidden, y);
    }
    if (row.x_vector) Add(x_vector.data(), hidden, y);
    if (row.text_id != kNoText) Add(projected_.at(row.text_id).data(), hidden, y);
    y += hidden;
  }
}

void Embedder::ProjectTexts(std::span<const PromptRow> rows) {
  std::vector<int32_t> missing;
  for (const PromptRow& row : rows) {
    if (row.text_id != kNoText && !projected_.contains(row.text_id)) missing.push_back(row.text_id);
  }
  if (missing.empty()) return;
  if (projected_.size() + missing.size() > kKeptProjections) {
    projected_.clear();
    missing.clear();
    for (const PromptRow& row : rows) {
      if (row.text_id != kNoText) missing.push_back(row.text_id);
    }
  }
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());

  const auto m = static_cast<int64_t>(missing.size());
  std::vector<float> embedded(static_cast<size_t>(m * text_fc1_.in()));
  std::vector<float> inner(static_cast<size_t>(m * text_fc1_.out()));
  std::vector<float> outer(static_cast<size_t>(m * text_fc2_.out()));
  for (int64_t i = 0; i < m; ++i) {
    LookUp(text_table_, missing[static_cast<size_t>(i)], embedded.data() + i * text_fc1_.in());
  }
  text_fc1_.Run(pool_, embedded.data(), m, inner.data());
  Silu(inner.data(), m * text_fc1_.out(), inner.data());
  text_fc2_.Run(pool_, inner.data(), m, outer.data());
  for (int64_t i = 0; i < m; ++i) {
    const float* const row = outer.data() + i * text_fc2_.out();
    // Memory may run out, so an entry is inserted complete or not at all.
    projected_.emplace(missing[static_cast<size_t>(i)], std::vector<float>(row, row + text_fc2_.out()));
  }
}

}  // namespace qtts::cpu
