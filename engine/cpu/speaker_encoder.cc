// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/speaker_encoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cpu/kernels.h"

namespace qtts::cpu {
namespace {

constexpr double kMinVariance = 1e-12;

// Rows per attention chunk. Its input is three times as wide as the rows.
constexpr int64_t kAttentionRows = 256;

size_t ToSize(int64_t n) { return static_cast<size_t>(n); }

void Relu(std::vector<float>* x) {
  for (float& value : *x) value = std::max(value, 0.0F);
}

// Computes mean and standard deviation of each of `channels` over all rows of x. Row t of channel c has the weight
// weight(t, c). Returns [means, deviations].
template <typename Weight>
std::vector<float> Statistics(const std::vector<float>& x, int64_t channels, const Weight& weight) {
  const auto width = ToSize(channels);
  std::vector<double> mean(width);
  std::vector<double> variance(width);
  for (size_t i = 0; i < x.size(); ++i) mean[i % width] += weight(i) * static_cast<double>(x[i]);
  for (size_t i = 0; i < x.size(); ++i) {
    const double difference = static_cast<double>(x[i]) - mean[i % width];
    variance[i % width] += weight(i) * difference * difference;
  }
  std::vector<float> statistics;
  statistics.reserve(2 * width);
  for (const double value : mean) statistics.push_back(static_cast<float>(value));
  for (const double value : variance) {
    statistics.push_back(static_cast<float>(std::sqrt(std::max(value, kMinVariance))));
  }
  return statistics;
}

}  // namespace

SpeakerEncoder::Block::Block(const Res2NetWeights& weights, int64_t dilation, ThreadPool& pool)
    : tdnn1(CausalConv::Plain(weights.tdnn1, 1, pool)),
      tdnn2(CausalConv::Plain(weights.tdnn2, 1, pool)),
      squeeze(CausalConv::Plain(weights.squeeze, 1, pool)),
      excite(CausalConv::Plain(weights.excite, 1, pool)) {
  branches.reserve(weights.branches.size());
  for (const ConvWeights& branch : weights.branches) branches.push_back(CausalConv::Plain(branch, dilation, pool));
}

SpeakerEncoder::SpeakerEncoder(const SpeakerEncoderConfig& config, const SpeakerEncoderWeights& weights,
                               ThreadPool& pool)
    : config_(config),
      pool_(pool),
      mels_(config.mel_bins),
      first_(CausalConv::Plain(weights.first, config.dilations.front(), pool)),
      aggregate_(CausalConv::Plain(weights.aggregate, config.dilations.back(), pool)),
      attention_tdnn_(CausalConv::Plain(weights.attention_tdnn, 1, pool)),
      attention_(CausalConv::Plain(weights.attention, 1, pool)),
      output_(CausalConv::Plain(weights.output, 1, pool)) {
  blocks_.reserve(weights.blocks.size());
  for (size_t i = 0; i < weights.blocks.size(); ++i) {
    blocks_.emplace_back(weights.blocks[i], config_.dilations[i + 1], pool);
  }
}

int64_t SpeakerEncoder::least_samples() const {
  int64_t most = std::max(first_.history(), aggregate_.history());
  for (const Block& block : blocks_) most = std::max(most, block.branches.front().history());
  return MelTables::Samples(most / 2 + 1);
}

std::vector<float> SpeakerEncoder::Encode(std::span<const float> pcm) const { return EncodeMels(mels_.Compute(pcm)); }

std::vector<float> SpeakerEncoder::EncodeMels(const std::vector<float>& mels) const {
  Rows x = Tdnn(first_, mels);
  std::vector<Rows> outputs;
  for (const Block& block : blocks_) outputs.push_back(x = RunBlock(block, x));
  // Concatenates the channels of all blocks. The first layer's are left out.
  const auto channels = ToSize(config_.channels.front());
  const size_t rows = x.size() / channels;
  Rows joined(rows * channels * outputs.size());
  for (size_t t = 0; t < rows; ++t) {
    for (size_t b = 0; b < outputs.size(); ++b) {
      std::copy_n(outputs[b].data() + t * channels, channels, joined.data() + (t * outputs.size() + b) * channels);
    }
  }
  const std::vector<float> pooled = Pool(Tdnn(aggregate_, joined));
  std::vector<float> x_vector(ToSize(output_.out()));
  output_.Run(pool_, pooled.data(), 1, false, x_vector.data());
  return x_vector;
}

SpeakerEncoder::Rows SpeakerEncoder::Convolve(const CausalConv& conv, const Rows& x) const {
  const int64_t width = conv.in();
  const int64_t rows = static_cast<int64_t>(x.size()) / width;
  Rows y(ToSize(rows * conv.out()));
  const int64_t padding = conv.history() / 2;
  if (padding == 0) {
    conv.Run(pool_, x.data(), rows, false, y.data());
    return y;
  }
  Rows padded(ToSize((rows + 2 * padding) * width));
  for (int64_t t = -padding; t < rows + padding; ++t) {
    const int64_t from = t < 0 ? -t : t >= rows ? 2 * (rows - 1) - t : t;
    std::copy_n(x.data() + from * width, width, padded.data() + (t + padding) * width);
  }
  conv.Run(pool_, padded.data(), rows, false, y.data());
  return y;
}

SpeakerEncoder::Rows SpeakerEncoder::Tdnn(const CausalConv& conv, const Rows& x) const {
  Rows y = Convolve(conv, x);
  Relu(&y);
  return y;
}

SpeakerEncoder::Rows SpeakerEncoder::RunBlock(const Block& block, const Rows& x) const {
  Rows y = Tdnn(block.tdnn2, Res2Net(block, Tdnn(block.tdnn1, x)));
  SqueezeExcite(block, &y);
  Add(x.data(), static_cast<int64_t>(x.size()), y.data());
  return y;
}

SpeakerEncoder::Rows SpeakerEncoder::Res2Net(const Block& block, const Rows& x) const {
  const auto channels = ToSize(config_.channels.front());
  const size_t width = channels / ToSize(config_.res2net_scale);
  const size_t rows = x.size() / channels;
  Rows y = x;  // the first part is copied unchanged
  Rows part;   // output of the previous branch
  for (size_t i = 0; i < block.branches.size(); ++i) {
    const size_t offset = (i + 1) * width;
    Rows input(rows * width);
    for (size_t t = 0; t < rows; ++t) std::copy_n(x.data() + t * channels + offset, width, input.data() + t * width);
    if (i > 0) Add(part.data(), static_cast<int64_t>(part.size()), input.data());
    part = Tdnn(block.branches[i], input);
    for (size_t t = 0; t < rows; ++t) std::copy_n(part.data() + t * width, width, y.data() + t * channels + offset);
  }
  return y;
}

void SpeakerEncoder::SqueezeExcite(const Block& block, Rows* x) const {
  const auto channels = ToSize(block.squeeze.in());
  const size_t rows = x->size() / channels;
  std::vector<double> sums(channels);
  for (size_t i = 0; i < x->size(); ++i) sums[i % channels] += static_cast<double>((*x)[i]);
  Rows means(channels);
  for (size_t c = 0; c < channels; ++c) means[c] = static_cast<float>(sums[c] / static_cast<double>(rows));
  Rows gates = Convolve(block.excite, Tdnn(block.squeeze, means));
  for (float& gate : gates) gate = 1.0F / (1.0F + std::exp(-gate));
  for (size_t i = 0; i < x->size(); ++i) (*x)[i] *= gates[i % channels];
}

std::vector<float> SpeakerEncoder::Pool(const Rows& x) const {
  const auto channels = ToSize(attention_.out());
  Rows weights = AttentionScores(x);
  std::vector<float> largest(weights.begin(), weights.begin() + static_cast<ptrdiff_t>(channels));
  for (size_t i = 0; i < weights.size(); ++i) largest[i % channels] = std::max(largest[i % channels], weights[i]);
  std::vector<double> sums(channels);
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] = std::exp(weights[i] - largest[i % channels]);
    sums[i % channels] += static_cast<double>(weights[i]);
  }
  return Statistics(x, attention_.out(),
                    [&](size_t i) { return static_cast<double>(weights[i]) / sums[i % channels]; });
}

SpeakerEncoder::Rows SpeakerEncoder::AttentionScores(const Rows& x) const {
  const int64_t channels = attention_.out();
  const int64_t rows = static_cast<int64_t>(x.size()) / channels;
  const std::vector<float> whole =
      Statistics(x, channels, [weight = 1.0 / static_cast<double>(rows)](size_t) { return weight; });
  Rows scores(x.size());
  Rows input(ToSize(std::min(rows, kAttentionRows) * attention_tdnn_.in()));
  for (int64_t begin = 0; begin < rows; begin += kAttentionRows) {
    const int64_t count = std::min(kAttentionRows, rows - begin);
    for (int64_t t = 0; t < count; ++t) {
      float* const row = input.data() + t * attention_tdnn_.in();
      std::copy_n(x.data() + (begin + t) * channels, channels, row);
      std::copy(whole.begin(), whole.end(), row + channels);
    }
    Rows inner(ToSize(count * attention_tdnn_.out()));
    attention_tdnn_.Run(pool_, input.data(), count, false, inner.data());
    for (float& value : inner) value = std::tanh(std::max(value, 0.0F));
    attention_.Run(pool_, inner.data(), count, false, scores.data() + begin * channels);
  }
  return scores;
}

}  // namespace qtts::cpu
