// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/transformer.h"

#include <algorithm>
#include <cmath>

#include "base/of_thread.h"
#include "cpu/kernels.h"
#include "cpu/scratch.h"

namespace qtts::cpu {
namespace {

// Positions with precomputed rotations. Those of later positions are computed once per row.
constexpr int64_t kKeptRotations = 64;

// Cost of a multiply-add of attention, in multiply-adds of a matrix product. With this value the pieces of a prompt of
// 12,000 tokens take 8 to 18 ms each, from first to last (bundled voice, two busy cores).
constexpr int64_t kAttentionCost = 4;

std::vector<float> FloatsOrNone(const std::optional<TensorView>& tensor) {
  return tensor.has_value() ? FloatsOf(*tensor) : std::vector<float>();
}

}  // namespace

Transformer::Layer::Layer(const TransformerLayerWeights& weights, WeightPacker* packer)
    : input_norm(FloatsOf(weights.input_norm)),
      post_norm(FloatsOf(weights.post_norm)),
      q(weights.q, packer),
      k(weights.k, packer),
      v(weights.v, packer),
      o(weights.o, packer),
      q_norm(FloatsOrNone(weights.q_norm)),
      k_norm(FloatsOrNone(weights.k_norm)),
      gate(weights.gate, packer),
      up(weights.up, packer),
      down(weights.down, packer),
      attention_scale(FloatsOrNone(weights.attention_scale)),
      mlp_scale(FloatsOrNone(weights.mlp_scale)) {}

Transformer::Transformer(const TransformerConfig& config, const TransformerWeights& weights, ThreadPool& pool,
                         WeightPacker* packer)
    : config_(config), pool_(pool), final_norm_(FloatsOf(weights.norm)) {
  layers_.reserve(weights.layers.size());
  for (const TransformerLayerWeights& layer : weights.layers) layers_.emplace_back(layer, packer);
  // As in the reference: the angle is the F32 product of the position and an F32 frequency.
  for (int i = 0; i < config.head_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(config.head_dim);
    inverse_frequencies_.push_back(1.0F / std::pow(config.rope_theta, exponent));
  }
  const int64_t kept = std::min<int64_t>(kKeptRotations, config.max_positions);
  std::vector<float> rotations(static_cast<size_t>(kept * config.head_dim));
  for (int64_t p = 0; p < kept; ++p) RotationOf(p, rotations.data() + p * config.head_dim);
  first_rotations_ = std::move(rotations);
}

void Transformer::RotationOf(int64_t position, float* rotation) const {
  const int64_t half = config_.head_dim / 2;
  const int64_t begin = position * config_.head_dim;
  if (begin < static_cast<int64_t>(first_rotations_.size())) {
    std::copy_n(first_rotations_.begin() + begin, config_.head_dim, rotation);
    return;
  }
  for (int64_t i = 0; i < half; ++i) {
    const float angle = static_cast<float>(position) * inverse_frequencies_[static_cast<size_t>(i)];
    rotation[i] = std::cos(angle);
    rotation[half + i] = std::sin(angle);
  }
}

int64_t Transformer::RowWork(int64_t position) const {
  int64_t work = 0;
  for (const Layer& layer : layers_) {
    for (const Linear* product : {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down}) {
      work += product->work();
    }
  }
  const int64_t visible =
      config_.sliding_window == 0 ? position + 1 : std::min<int64_t>(position + 1, config_.sliding_window);
  return work + kAttentionCost * config_.num_layers * 2 * visible * config_.q_width();
}

void Transformer::PlaceRows(std::span<const SequenceRows> sequences) {
  rows_.clear();
  for (const SequenceRows& sequence : sequences) {
    const int64_t begin = sequence.cache->length();
    sequence.cache->Extend(sequence.rows);
    for (int64_t i = 0; i < sequence.rows; ++i) rows_.push_back({sequence.cache, begin + i, nullptr});
    if (sequence.rows > 0) rows_.back().queries = sequence.queries;
  }
  const auto m = static_cast<int64_t>(rows_.size());
  GrowScratch(&rotations_, m * config_.head_dim);
  for (int64_t i = 0; i < m; ++i) {
    RotationOf(rows_[static_cast<size_t>(i)].position, rotations_.data() + i * config_.head_dim);
  }
  GrowScratch(&normed_, m * config_.hidden_size);
  GrowScratch(&q_, m * config_.q_width());
  GrowScratch(&k_, m * config_.kv_width());
  GrowScratch(&v_, m * config_.kv_width());
  GrowScratch(&attended_, m * config_.q_width());
  GrowScratch(&gate_, m * config_.intermediate_size);
  GrowScratch(&up_, m * config_.intermediate_size);
  GrowScratch(&branch_, m * config_.hidden_size);
}

void Transformer::Forward(std::span<const SequenceRows> sequences, float* x) {
  PlaceRows(sequences);
  for (int i = 0; i < static_cast<int>(layers_.size()); ++i) {
    Attention(i, x);
    Mlp(layers_[static_cast<size_t>(i)], x);
  }
  const int64_t hidden = config_.hidden_size;
  for (size_t i = 0; i < rows_.size(); ++i, x += hidden) {
    RmsNorm(x, final_norm_.data(), config_.rms_norm_eps, hidden, x);
  }
}

void Transformer::Attention(int index, float* x) {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const auto m = static_cast<int64_t>(rows_.size());
  const int64_t hidden = config_.hidden_size;
  const int64_t head_dim = config_.head_dim;
  for (int64_t i = 0; i < m; ++i) {
    RmsNorm(x + i * hidden, layer.input_norm.data(), config_.rms_norm_eps, hidden, normed_.data() + i * hidden);
  }
  Linear::RunTogether(pool_, normed_.data(), m, {{&layer.q, q_.data()}, {&layer.k, k_.data()}, {&layer.v, v_.data()}});

  int64_t visible = 0;  // number of keys attended to by all rows
  for (int64_t i = 0; i < m; ++i) {
    const Row& row = rows_[static_cast<size_t>(i)];
    const float* const cosines = rotations_.data() + i * head_dim;
    const auto place = [&](float* head, const std::vector<float>& norm) {
      if (!norm.empty()) RmsNorm(head, norm.data(), config_.rms_norm_eps, head_dim, head);
      Rotate(cosines, cosines + head_dim / 2, head_dim / 2, head);
    };
    float* const q = q_.data() + i * config_.q_width();
    for (int h = 0; h < config_.num_heads; ++h) place(q + h * head_dim, layer.q_norm);
    if (row.queries != nullptr) CopyQueries(index, row, q);
    float* const k = k_.data() + i * config_.kv_width();
    for (int h = 0; h < config_.num_kv_heads; ++h) place(k + h * head_dim, layer.k_norm);
    const float* const v = v_.data() + i * config_.kv_width();
    for (int h = 0; h < config_.num_kv_heads; ++h) {
      std::copy_n(k + h * head_dim, head_dim, row.cache->Key(index, h, row.position));
      std::copy_n(v + h * head_dim, head_dim, row.cache->Value(index, h, row.position));
    }
    visible +=
        config_.sliding_window == 0 ? row.position + 1 : std::min<int64_t>(row.position + 1, config_.sliding_window);
  }

  // The unit of work is a (row, head) pair.
  const int64_t heads = config_.num_heads;
  pool_.ParallelFor(m * heads, 1, kAttentionCost * 2 * visible * config_.q_width(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end;) {
      const int64_t row_end = std::min(end, (i / heads + 1) * heads);
      AttendRow(index, i / heads, i % heads, i % heads + row_end - i);
      i = row_end;
    }
  });
  layer.o.Run(pool_, attended_.data(), m, branch_.data());
  AddBranch(layer.attention_scale, x);
}

void Transformer::CopyQueries(int index, const Row& row, const float* q) const {
  const int64_t head_dim = config_.head_dim;
  float* to = row.queries;
  for (const QueryHead& watched : watched_) {
    if (watched.layer == index) std::copy_n(q + watched.head * head_dim, head_dim, to);
    to += head_dim;
  }
}

void Transformer::AttendRow(int index, int64_t row, int64_t first_head, int64_t end_head) {
  // Called by all pool threads at once: each has its own scratch, reused from call to call.
  struct Scratch {
    std::vector<KeyValueSpan> spans;
    std::vector<float> scores;
  };
  auto& [spans, scores] = OfThread<Scratch>();
  const Row& place = rows_[static_cast<size_t>(row)];
  const int64_t head_dim = config_.head_dim;
  const int64_t group = config_.num_heads / config_.num_kv_heads;
  const float scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
  GrowScratch(&scores, place.position + 1);
  for (int64_t h = first_head; h < end_head; ++h) {
    place.cache->Visible(index, static_cast<int>(h / group), place.position, &spans);
    const int64_t offset = row * config_.q_width() + h * head_dim;
    Attend(q_.data() + offset, spans, head_dim, head_dim, scale, scores.data(), attended_.data() + offset);
  }
}

void Transformer::Mlp(const Layer& layer, float* x) {
  const auto m = static_cast<int64_t>(rows_.size());
  const int64_t hidden = config_.hidden_size;
  for (int64_t i = 0; i < m; ++i) {
    RmsNorm(x + i * hidden, layer.post_norm.data(), config_.rms_norm_eps, hidden, normed_.data() + i * hidden);
  }
  Linear::RunTogether(pool_, normed_.data(), m, {{&layer.gate, gate_.data()}, {&layer.up, up_.data()}});
  for (int64_t i = 0; i < m; ++i) {
    float* const gate = gate_.data() + i * config_.intermediate_size;
    SiluMul(gate, up_.data() + i * config_.intermediate_size, config_.intermediate_size, gate);
  }
  layer.down.Run(pool_, gate_.data(), m, branch_.data());
  AddBranch(layer.mlp_scale, x);
}

void Transformer::AddBranch(const std::vector<float>& scale, float* x) {
  const int64_t hidden = config_.hidden_size;
  const float* branch = branch_.data();
  for (size_t i = 0; i < rows_.size(); ++i, x += hidden, branch += hidden) {
    if (scale.empty()) {
      Add(branch, hidden, x);
    } else {
      AddScaled(scale.data(), branch, hidden, x);
    }
  }
}

}  // namespace qtts::cpu
