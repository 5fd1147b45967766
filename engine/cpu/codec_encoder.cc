// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/codec_encoder.h"

#include <algorithm>
#include <cmath>

#include "cpu/kernels.h"

namespace qtts::cpu {
namespace {

// Frames per chunk of the convolutions: enough to amortise the reads of the weights, few enough for the widest rows to
// stay in cache.
constexpr int64_t kEncoderChunkFrames = 4;

constexpr float kEncoderLeastUsage = 1e-5F;

// Stride of the last stage, which halves the rate after the transformer.
constexpr int64_t kLastStride = 2;

// Costs of one element in multiply-adds, and the minimum rows per thread.
constexpr int64_t kEluWork = 16;
constexpr int64_t kEncoderGeluWork = 64;
constexpr int64_t kEncoderGrain = 16;

size_t Size(int64_t n) { return static_cast<size_t>(n); }

}  // namespace

CodecEncoder::Stage::Stage(const EncoderStageWeights& weights, int64_t s, ThreadPool& pool)
    : residual1(CausalConv::Plain(weights.residual1, 1, pool)),
      residual2(CausalConv::Plain(weights.residual2, 1, pool)),
      strided(CausalConv::Strided(weights.strided, s, pool)),
      stride(s) {}

CodecEncoder::Layer::Layer(const EncoderLayerWeights& weights)
    : input_norm(FloatsOf(weights.input_norm)),
      input_norm_bias(FloatsOf(weights.input_norm_bias)),
      post_norm(FloatsOf(weights.post_norm)),
      post_norm_bias(FloatsOf(weights.post_norm_bias)),
      q(weights.q),
      k(weights.k),
      v(weights.v),
      o(weights.o),
      fc1(weights.fc1),
      fc2(weights.fc2),
      attention_scale(FloatsOf(weights.attention_scale)),
      mlp_scale(FloatsOf(weights.mlp_scale)) {}

CodecEncoder::Codebook::Codebook(const CodebookWeights& weights)
    : dim(weights.embedding_sum.shape[1]), codewords(FloatsOf(weights.embedding_sum)) {
  const std::vector<float> usage = FloatsOf(weights.cluster_usage);
  for (size_t entry = 0; entry < usage.size(); ++entry) {
    double square = 0;
    for (size_t i = entry * Size(dim); i < (entry + 1) * Size(dim); ++i) {
      codewords[i] /= std::max(usage[entry], kEncoderLeastUsage);
      square += static_cast<double>(codewords[i]) * static_cast<double>(codewords[i]);
    }
    squares.push_back(static_cast<float>(square));
  }
}

CodecEncoder::CodecEncoder(const CodecEncoderConfig& config, const CodecEncoderWeights& weights, ThreadPool& pool)
    : config_(config),
      pool_(pool),
      first_conv_(CausalConv::Plain(weights.first_conv, 1, pool)),
      last_conv_(CausalConv::Plain(weights.last_conv, 1, pool)),
      downsample_(CausalConv::Strided(weights.downsample, kLastStride, pool)),
      semantic_projection_(weights.semantic_projection),
      acoustic_projection_(weights.acoustic_projection) {
  stages_.reserve(weights.stages.size());
  for (size_t i = 0; i < weights.stages.size(); ++i) stages_.emplace_back(weights.stages[i], config_.strides[i], pool);
  layers_.reserve(weights.layers.size());
  for (const EncoderLayerWeights& layer : weights.layers) layers_.emplace_back(layer);
  codebooks_.reserve(weights.codebooks.size());
  for (const CodebookWeights& codebook : weights.codebooks) codebooks_.emplace_back(codebook);
}

std::vector<int32_t> CodecEncoder::Encode(std::span<const float> pcm) {
  std::vector<float> x = Convolutions(pcm);
  Transform(&x);
  return Quantize(Downsample(x));
}

std::vector<float> CodecEncoder::Convolutions(std::span<const float> pcm) {
  histories_.clear();
  std::vector<float> out;
  const auto chunk = Size(kEncoderChunkFrames * config_.samples_per_frame);
  for (size_t begin = 0; begin < pcm.size(); begin += chunk) {
    ConvolveChunk(pcm.subspan(begin, std::min(chunk, pcm.size() - begin)), &out);
  }
  return out;
}

void CodecEncoder::ConvolveChunk(std::span<const float> pcm, std::vector<float>* out) {
  next_history_ = 0;
  // The first convolution has no activation before it.
  const int64_t history = first_conv_.history();
  if (histories_.empty()) histories_.emplace_back(Size(history));
  std::vector<float>& before = histories_[next_history_++];
  window_ = before;
  window_.insert(window_.end(), pcm.begin(), pcm.end());
  std::copy(window_.end() - history, window_.end(), before.begin());
  rows_ = static_cast<int64_t>(pcm.size());
  width_ = first_conv_.out();
  x_.resize(Size(rows_ * width_));
  first_conv_.Run(pool_, window_.data(), rows_, false, x_.data());

  for (const Stage& stage : stages_) RunStage(stage);

  const float* const window = EluWindow(last_conv_.history());
  const size_t old = out->size();
  out->resize(old + Size(rows_ * last_conv_.out()));
  last_conv_.Run(pool_, window, rows_, false, out->data() + old);
}

void CodecEncoder::RunStage(const Stage& stage) {
  const float* const window = EluWindow(stage.residual1.history());
  inner_.resize(Size(rows_ * stage.residual1.out()));
  stage.residual1.Run(pool_, window, rows_, false, inner_.data());
  Elu(inner_.data(), static_cast<int64_t>(inner_.size()), inner_.data());
  stage.residual2.Run(pool_, inner_.data(), rows_, true, x_.data());

  // The last rows of the recording are padded with zeros to a whole stride, after the activation.
  const int64_t strides = (rows_ + stage.stride - 1) / stage.stride;
  const int64_t missing = strides * stage.stride - rows_;
  const int64_t looks_back = stage.strided.history() * stage.stride;
  float* const wide = EluWindow(looks_back, missing);
  std::fill_n(wide + (looks_back + rows_) * width_, missing * width_, 0.0F);
  inner_.resize(Size(strides * stage.strided.out()));
  stage.strided.Run(pool_, wide, strides, false, inner_.data());
  x_.swap(inner_);
  rows_ = strides;
  width_ = stage.strided.out();
}

float* CodecEncoder::EluWindow(int64_t history, int64_t more) {
  if (next_history_ == histories_.size()) histories_.emplace_back(Size(history * width_));
  std::vector<float>& before = histories_[next_history_++];
  window_.resize(Size((history + rows_ + more) * width_));
  std::copy(before.begin(), before.end(), window_.begin());
  float* const fresh = window_.data() + history * width_;
  pool_.ParallelFor(rows_, kEncoderGrain, rows_ * width_ * kEluWork, [&](int64_t begin, int64_t end) {
    Elu(x_.data() + begin * width_, (end - begin) * width_, fresh + begin * width_);
  });
  std::copy_n(window_.data() + rows_ * width_, history * width_, before.begin());
  return window_.data();
}

void CodecEncoder::Transform(std::vector<float>* x) const {
  const int64_t rows = static_cast<int64_t>(x->size()) / config_.hidden_size;
  for (const Layer& layer : layers_) {
    Attention(layer, rows, x->data());
    Mlp(layer, rows, x->data());
  }
}

void CodecEncoder::Attention(const Layer& layer, int64_t rows, float* x) const {
  const int64_t hidden = config_.hidden_size;
  const int64_t width = config_.width();
  const int64_t heads = config_.num_heads;
  const int64_t head_dim = config_.head_dim;
  const int64_t half = head_dim / 2;
  std::vector<float> normed(Size(rows * hidden));
  for (int64_t t = 0; t < rows; ++t) {
    LayerNorm(x + t * hidden, layer.input_norm.data(), layer.input_norm_bias.data(), config_.norm_eps, hidden,
              normed.data() + t * hidden);
  }
  std::vector<float> q(Size(rows * width)), k(q.size()), v(q.size()), attended(q.size());
  layer.q.Run(pool_, normed.data(), rows, q.data());
  layer.k.Run(pool_, normed.data(), rows, k.data());
  layer.v.Run(pool_, normed.data(), rows, v.data());
  std::vector<float> cosines(Size(half)), sines(Size(half));
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t i = 0; i < half; ++i) {
      const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
      const float angle = static_cast<float>(t) * (1.0F / std::pow(config_.rope_theta, exponent));
      cosines[Size(i)] = std::cos(angle);
      sines[Size(i)] = std::sin(angle);
    }
    for (int64_t h = 0; h < heads; ++h) {
      Rotate(cosines.data(), sines.data(), half, q.data() + t * width + h * head_dim);
      Rotate(cosines.data(), sines.data(), half, k.data() + t * width + h * head_dim);
    }
  }
  const float scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
  pool_.ParallelFor(rows, 1, rows * rows * width, [&](int64_t begin, int64_t end) {
    std::vector<float> scores(Size(end));
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t offset = h * head_dim;
        const KeyValueSpan past{k.data() + offset, v.data() + offset, t + 1};
        Attend(q.data() + t * width + offset, {&past, 1}, width, head_dim, scale, scores.data(),
               attended.data() + t * width + offset);
      }
    }
  });
  layer.o.Run(pool_, attended.data(), rows, normed.data());
  for (int64_t t = 0; t < rows; ++t) {
    AddScaled(layer.attention_scale.data(), normed.data() + t * hidden, hidden, x + t * hidden);
  }
}

void CodecEncoder::Mlp(const Layer& layer, int64_t rows, float* x) const {
  const int64_t hidden = config_.hidden_size;
  const int64_t wide = config_.intermediate_size;
  std::vector<float> normed(Size(rows * hidden));
  for (int64_t t = 0; t < rows; ++t) {
    LayerNorm(x + t * hidden, layer.post_norm.data(), layer.post_norm_bias.data(), config_.norm_eps, hidden,
              normed.data() + t * hidden);
  }
  std::vector<float> inner(Size(rows * wide));
  layer.fc1.Run(pool_, normed.data(), rows, inner.data());
  pool_.ParallelFor(rows, 1, rows * wide * kEncoderGeluWork, [&](int64_t begin, int64_t end) {
    Gelu(inner.data() + begin * wide, (end - begin) * wide, inner.data() + begin * wide);
  });
  layer.fc2.Run(pool_, inner.data(), rows, normed.data());
  for (int64_t t = 0; t < rows; ++t) {
    AddScaled(layer.mlp_scale.data(), normed.data() + t * hidden, hidden, x + t * hidden);
  }
}

std::vector<float> CodecEncoder::Downsample(const std::vector<float>& x) const {
  const int64_t hidden = config_.hidden_size;
  const int64_t rows = static_cast<int64_t>(x.size()) / hidden;
  const int64_t strides = (rows + kLastStride - 1) / kLastStride;
  const int64_t before = downsample_.history() * kLastStride;
  // The only convolution padded by repeating the first and the last row instead of with zeros.
  std::vector<float> padded(Size((before + strides * kLastStride) * hidden));
  for (int64_t t = 0; t < before + strides * kLastStride; ++t) {
    const int64_t from = std::clamp<int64_t>(t - before, 0, rows - 1);
    std::copy_n(x.data() + from * hidden, hidden, padded.data() + t * hidden);
  }
  std::vector<float> y(Size(strides * downsample_.out()));
  downsample_.Run(pool_, padded.data(), strides, false, y.data());
  return y;
}

std::vector<int32_t> CodecEncoder::Quantize(const std::vector<float>& x) const {
  const int64_t frames = static_cast<int64_t>(x.size()) / config_.hidden_size;
  const size_t groups = codebooks_.size();
  std::vector<int32_t> codes(Size(frames) * groups);
  std::vector<float> residual(Size(frames * semantic_projection_.out()));
  semantic_projection_.Run(pool_, x.data(), frames, residual.data());
  for (size_t group = 0; group < groups; ++group) {
    // The acoustic codebooks quantise the vector itself, not the residual of the semantic one.
    if (group == 1) acoustic_projection_.Run(pool_, x.data(), frames, residual.data());
    const Codebook& codebook = codebooks_[group];
    const std::vector<int32_t> nearest = Nearest(codebook, residual);
    const auto dim = Size(codebook.dim);
    for (size_t t = 0; t < nearest.size(); ++t) {
      codes[t * groups + group] = nearest[t];
      const float* const codeword = codebook.codewords.data() + static_cast<size_t>(nearest[t]) * dim;
      for (size_t i = 0; i < dim; ++i) residual[t * dim + i] -= codeword[i];
    }
  }
  return codes;
}

std::vector<int32_t> CodecEncoder::Nearest(const Codebook& codebook, const std::vector<float>& x) const {
  const int64_t rows = static_cast<int64_t>(x.size()) / codebook.dim;
  const auto entries = static_cast<int64_t>(codebook.squares.size());
  const MatrixView codewords{DType::kF32, codebook.codewords.data(), entries, codebook.dim};
  std::vector<float> products(Size(rows * entries));
  pool_.ParallelFor(entries, kEncoderGrain, rows * entries * codebook.dim, [&](int64_t begin, int64_t end) {
    MatMul(codewords, nullptr, x.data(), rows, begin, end, products.data());
  });
  std::vector<int32_t> nearest;
  for (int64_t t = 0; t < rows; ++t) {
    // Squared distance without the row's own square, which is the same for all codewords. On ties the first wins.
    const float* const product = products.data() + t * entries;
    int64_t best = 0;
    for (int64_t e = 1; e < entries; ++e) {
      if (codebook.squares[Size(e)] - 2 * product[e] < codebook.squares[Size(best)] - 2 * product[best]) best = e;
    }
    nearest.push_back(static_cast<int32_t>(best));
  }
  return nearest;
}

}  // namespace qtts::cpu
