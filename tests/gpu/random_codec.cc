// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gpu/random_codec.h"

#include <cmath>
#include <utility>

namespace qtts::testing {

CodecShape CodecShape::Released() {
  CodecShape shape;
  shape.codebook_size = 2048;
  shape.codebook_dim = 512;
  shape.groups = 16;
  shape.latent = 1024;
  shape.hidden = 512;
  shape.intermediate = 1024;
  shape.layers = 8;
  shape.heads = 16;
  shape.kv_heads = 16;
  shape.head_dim = 64;
  shape.window = 72;
  shape.decoder_dim = 1536;
  shape.rates = {8, 5, 4, 3};
  return shape;
}

TensorView RandomCodec::Random(std::vector<int64_t> shape, float center, float deviation) {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  std::vector<float>& values = tensors_.emplace_back(static_cast<size_t>(elements));
  // Uniform numbers suffice here and are fast.
  const float step = deviation * std::sqrt(12.0F) / 4294967296.0F;
  for (float& value : values) value = center + (static_cast<float>(random_()) - 2147483648.0F) * step;
  return {DType::kF32, std::move(shape), values.data()};
}

TensorView RandomCodec::Matrix(std::vector<int64_t> shape, int64_t inputs, float gain) {
  return Random(std::move(shape), 0, gain / std::sqrt(static_cast<float>(inputs)));
}

ConvWeights RandomCodec::Conv(std::vector<int64_t> shape, int64_t inputs, int64_t outputs, float gain) {
  ConvWeights conv;
  conv.weight = Matrix(std::move(shape), inputs, gain);
  conv.bias = Random({outputs}, 0, 0.1F * gain);
  return conv;
}

LinearWeights RandomCodec::Linear(int64_t out, int64_t in, bool bias, float gain) {
  LinearWeights linear;
  linear.weight = Matrix({out, in}, in, gain);
  if (bias) linear.bias = Random({out}, 0, 0.1F * gain);
  return linear;
}

SnakeWeights RandomCodec::Snake(int64_t channels) {
  // Slopes near 1: rounding errors keep their size on the way, as they do in trained models.
  return {Random({channels}, -0.5F, 0.4F), Random({channels}, 0.5F, 0.4F)};
}

RandomCodec::RandomCodec(const CodecShape& s, uint32_t seed) : random_(seed) {
  TransformerConfig& t = config_.transformer;
  t.hidden_size = s.hidden;
  t.intermediate_size = s.intermediate;
  t.num_layers = s.layers;
  t.num_heads = s.heads;
  t.num_kv_heads = s.kv_heads;
  t.head_dim = s.head_dim;
  t.max_positions = 8000;
  t.sliding_window = s.window;
  t.rms_norm_eps = 1e-5F;
  t.rope_theta = 10000;
  t.qk_norm = false;
  config_.codebook_size = s.codebook_size;
  config_.codebook_dim = s.codebook_dim;
  config_.latent_dim = s.latent;
  config_.decoder_dim = s.decoder_dim;
  config_.num_quantizers = s.groups;
  config_.num_semantic_quantizers = 1;
  config_.upsample_rates = s.rates;
  config_.upsampling_ratios = s.upsampling;
  config_.sample_rate = 24000;
  config_.samples_per_frame = 1;
  for (const int rate : s.rates) config_.samples_per_frame *= rate;
  for (const int rate : s.upsampling) config_.samples_per_frame *= rate;

  const int64_t half = s.codebook_dim / 2;
  for (int g = 0; g < s.groups; ++g) {
    weights_.codebooks.push_back(
        {Random({s.codebook_size, half}, 0, g == 0 ? 2.0F : 1.0F), Random({s.codebook_size}, 2, 0.5F)});
  }
  weights_.semantic_projection = Matrix({s.codebook_dim, half, 1}, half);
  weights_.acoustic_projection = Matrix({s.codebook_dim, half, 1}, half);
  weights_.pre_conv = Conv({s.latent, s.codebook_dim, 3}, int64_t{3} * s.codebook_dim, s.latent);
  weights_.input_projection = Linear(s.hidden, s.latent, true);
  weights_.output_projection = Linear(s.latent, s.hidden, true);
  for (int i = 0; i < s.layers; ++i) {
    TransformerLayerWeights layer;
    layer.input_norm = Random({s.hidden}, 1, 0.2F);
    layer.post_norm = Random({s.hidden}, 1, 0.2F);
    layer.q = Linear(t.q_width(), s.hidden, false, 1.5F);
    layer.k = Linear(t.kv_width(), s.hidden, false, 1.5F);
    layer.v = Linear(t.kv_width(), s.hidden, false);
    layer.o = Linear(s.hidden, t.q_width(), false);
    layer.gate = Matrix({s.intermediate, s.hidden}, s.hidden);
    layer.up = Matrix({s.intermediate, s.hidden}, s.hidden);
    layer.down = Matrix({s.hidden, s.intermediate}, s.intermediate);
    layer.attention_scale = Random({s.hidden}, 0.4F, 0.2F);
    layer.mlp_scale = Random({s.hidden}, 0.4F, 0.2F);
    weights_.transformer.layers.push_back(layer);
  }
  weights_.transformer.norm = Random({s.hidden}, 1, 0.2F);
  for (const int ratio : s.upsampling) {
    ConvNeXtWeights stage;
    stage.transposed = Conv({s.latent, s.latent, ratio}, s.latent, s.latent);
    stage.depthwise = Conv({s.latent, 1, 7}, 7, s.latent);
    stage.norm_weight = Random({s.latent}, 1, 0.2F);
    stage.norm_bias = Random({s.latent}, 0, 0.1F);
    stage.expand = Linear(int64_t{4} * s.latent, s.latent, true);
    stage.contract = Linear(s.latent, int64_t{4} * s.latent, true);
    stage.gamma = Random({s.latent}, 0.5F, 0.2F);
    weights_.upsample.push_back(stage);
  }
  weights_.first_conv = Conv({s.decoder_dim, s.latent, 7}, int64_t{7} * s.latent, s.decoder_dim);
  int64_t channels = s.decoder_dim;
  for (const int rate : s.rates) {
    DecoderBlockWeights block;
    block.snake = Snake(channels);
    block.transposed = Conv({channels, channels / 2, int64_t{2} * rate}, 2 * channels, channels / 2, 0.7F);
    channels /= 2;
    for (int i = 0; i < 3; ++i) {
      ResidualUnitWeights unit;
      unit.act1 = Snake(channels);
      unit.conv1 = Conv({channels, channels, 7}, 7 * channels, channels, 0.7F);
      unit.act2 = Snake(channels);
      unit.conv2 = Conv({channels, channels, 1}, channels, channels, 0.3F);
      block.residuals.push_back(unit);
    }
    weights_.blocks.push_back(block);
  }
  weights_.last_snake = Snake(channels);
  weights_.last_conv = Conv({1, channels, 7}, 7 * channels, 1, 0.15F);
}

std::vector<int32_t> RandomCodec::Codes(int frames) {
  std::vector<int32_t> codes(static_cast<size_t>(frames) * weights_.codebooks.size());
  for (int32_t& code : codes) code = static_cast<int32_t>(random_() % static_cast<uint32_t>(config_.codebook_size));
  return codes;
}

}  // namespace qtts::testing
