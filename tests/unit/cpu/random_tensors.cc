// SPDX-License-Identifier: LGPL-2.1-or-later
#include "random_tensors.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace qtts::cpu {
namespace {

double FromHalf(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

// Truncates; values below the smallest normal number become 0.
uint16_t ToHalf(double value) {
  const uint16_t sign = value < 0 ? 0x8000 : 0;
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(value), &exponent);  // in [1/2, 1)
  if (fraction == 0 || exponent + 14 < 1) return sign;
  return static_cast<uint16_t>(sign | (exponent + 14) << 10 | (static_cast<int>(fraction * 2048) & 1023));
}

double FromBFloat(uint16_t bits) {
  return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
}

uint16_t ToBFloat(double value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16);
}

template <typename T>
T Element(const void* data, int64_t i) {
  T value;
  memcpy(&value, static_cast<const char*>(data) + static_cast<size_t>(i) * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

TensorView RandomTensors::Tensor(std::vector<int64_t> shape, DType dtype, double scale, double mean) {
  TensorView view;
  view.dtype = dtype;
  view.shape = std::move(shape);
  std::vector<std::byte>& bytes = storage_.emplace_back(view.bytes());
  view.data = bytes.data();
  std::uniform_real_distribution<double> uniform(mean - scale, mean + scale);
  for (int64_t i = 0; i < view.elements(); ++i) {
    const double value = uniform(random_);
    std::byte* const to = bytes.data() + static_cast<size_t>(i) * DTypeBytes(dtype);
    if (dtype == DType::kF32) {
      const auto f = static_cast<float>(value);
      memcpy(to, &f, sizeof(f));
    } else {
      const uint16_t bits = dtype == DType::kF16 ? ToHalf(value) : ToBFloat(value);
      memcpy(to, &bits, sizeof(bits));
    }
  }
  return view;
}

std::vector<float> RandomTensors::Floats(int64_t n, double scale, double mean) {
  std::uniform_real_distribution<double> uniform(mean - scale, mean + scale);
  std::vector<float> floats(static_cast<size_t>(n));
  for (float& f : floats) f = static_cast<float>(uniform(random_));
  return floats;
}

std::vector<double> Values(const TensorView& tensor) {
  std::vector<double> values;
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    switch (tensor.dtype) {
      case DType::kF32:
        values.push_back(static_cast<double>(Element<float>(tensor.data, i)));
        break;
      case DType::kF16:
        values.push_back(FromHalf(Element<uint16_t>(tensor.data, i)));
        break;
      case DType::kBF16:
        values.push_back(FromBFloat(Element<uint16_t>(tensor.data, i)));
        break;
    }
  }
  return values;
}

namespace {

// A matrix whose products keep the magnitude of the inputs.
TensorView Matrix(int64_t out, int64_t in, DType dtype, RandomTensors* random) {
  return random->Tensor({out, in}, dtype, std::sqrt(3.0 / static_cast<double>(in)));
}

LinearWeights RandomLinear(int64_t out, int64_t in, bool bias, DType dtype, RandomTensors* random) {
  LinearWeights weights;
  weights.weight = Matrix(out, in, dtype, random);
  if (bias) weights.bias = random->Tensor({out}, dtype, 0.3);
  return weights;
}

ConvWeights RandomConv(std::vector<int64_t> shape, int64_t out, int64_t inputs, DType dtype, RandomTensors* random) {
  ConvWeights weights;
  weights.weight = random->Tensor(std::move(shape), dtype, std::sqrt(2.0 / static_cast<double>(inputs)));
  weights.bias = random->Tensor({out}, dtype, 0.2);
  return weights;
}

SnakeWeights RandomSnake(int64_t channels, DType dtype, RandomTensors* random) {
  return {random->Tensor({channels}, dtype, 0.7), random->Tensor({channels}, dtype, 0.7, 0.5)};
}

}  // namespace

TransformerWeights RandomTransformer(const TransformerConfig& config, bool layer_scale, DType dtype,
                                     RandomTensors* random) {
  TransformerWeights weights;
  const int64_t hidden = config.hidden_size;
  for (int i = 0; i < config.num_layers; ++i) {
    TransformerLayerWeights& layer = weights.layers.emplace_back();
    layer.input_norm = random->Tensor({hidden}, dtype, 0.5, 1);
    layer.post_norm = random->Tensor({hidden}, dtype, 0.5, 1);
    layer.q = RandomLinear(config.q_width(), hidden, config.attention_bias, dtype, random);
    layer.k = RandomLinear(config.kv_width(), hidden, config.attention_bias, dtype, random);
    layer.v = RandomLinear(config.kv_width(), hidden, config.attention_bias, dtype, random);
    layer.o = RandomLinear(hidden, config.q_width(), config.attention_bias, dtype, random);
    if (config.qk_norm) {
      layer.q_norm = random->Tensor({config.head_dim}, dtype, 0.5, 1.2);
      layer.k_norm = random->Tensor({config.head_dim}, dtype, 0.5, 1.2);
    }
    layer.gate = Matrix(config.intermediate_size, hidden, dtype, random);
    layer.up = Matrix(config.intermediate_size, hidden, dtype, random);
    layer.down = Matrix(hidden, config.intermediate_size, dtype, random);
    if (layer_scale) {
      layer.attention_scale = random->Tensor({hidden}, dtype, 0.3, 0.5);
      layer.mlp_scale = random->Tensor({hidden}, dtype, 0.3, 0.5);
    }
  }
  weights.norm = random->Tensor({hidden}, dtype, 0.5, 1);
  return weights;
}

TalkerWeights RandomTalker(const TalkerConfig& config, DType dtype, RandomTensors* random) {
  TalkerWeights weights;
  const int64_t hidden = config.transformer.hidden_size;
  weights.text_embedding = random->Tensor({config.text_vocab_size, config.text_hidden_size}, dtype);
  weights.text_fc1 = RandomLinear(config.text_hidden_size, config.text_hidden_size, true, dtype, random);
  weights.text_fc2 = RandomLinear(hidden, config.text_hidden_size, true, dtype, random);
  weights.codec_embedding = random->Tensor({config.vocab_size, hidden}, dtype);
  weights.codec_head = Matrix(config.vocab_size, hidden, dtype, random);
  weights.transformer = RandomTransformer(config.transformer, false, dtype, random);
  return weights;
}

PredictorWeights RandomPredictor(const TalkerConfig& talker, const PredictorConfig& config, DType dtype,
                                 RandomTensors* random) {
  PredictorWeights weights;
  const int64_t talker_width = talker.transformer.hidden_size;
  const int64_t width = config.transformer.hidden_size;
  if (width != talker_width) weights.input_projection = RandomLinear(width, talker_width, true, dtype, random);
  for (int i = 1; i < talker.num_code_groups; ++i) {
    weights.embeddings.push_back(random->Tensor({config.vocab_size, talker_width}, dtype));
    weights.heads.push_back(Matrix(config.vocab_size, width, dtype, random));
  }
  weights.transformer = RandomTransformer(config.transformer, false, dtype, random);
  return weights;
}

CodecWeights RandomCodec(const CodecConfig& config, DType dtype, RandomTensors* random) {
  CodecWeights weights;
  const int64_t dim = config.codebook_dim / 2;
  const int64_t latent = config.latent_dim;
  for (int i = 0; i < config.num_quantizers; ++i) {
    CodebookWeights& codebook = weights.codebooks.emplace_back();
    codebook.embedding_sum = random->Tensor({config.codebook_size, dim}, dtype, 2);
    codebook.cluster_usage = random->Tensor({config.codebook_size}, dtype, 1, 1.5);
  }
  weights.semantic_projection = random->Tensor({config.codebook_dim, dim, 1}, dtype, 0.3);
  weights.acoustic_projection = random->Tensor({config.codebook_dim, dim, 1}, dtype, 0.3);
  weights.pre_conv = RandomConv({latent, config.codebook_dim, 3}, latent, 3 * config.codebook_dim, dtype, random);
  weights.input_projection = RandomLinear(config.transformer.hidden_size, latent, true, dtype, random);
  weights.output_projection = RandomLinear(latent, config.transformer.hidden_size, true, dtype, random);
  weights.transformer = RandomTransformer(config.transformer, true, dtype, random);
  for (const int ratio : config.upsampling_ratios) {
    ConvNeXtWeights& stage = weights.upsample.emplace_back();
    stage.transposed = RandomConv({latent, latent, ratio}, latent, latent, dtype, random);
    stage.depthwise = RandomConv({latent, 1, 7}, latent, 7, dtype, random);
    stage.norm_weight = random->Tensor({latent}, dtype, 0.5, 1);
    stage.norm_bias = random->Tensor({latent}, dtype, 0.5);
    stage.expand = RandomLinear(4 * latent, latent, true, dtype, random);
    stage.contract = RandomLinear(latent, 4 * latent, true, dtype, random);
    stage.gamma = random->Tensor({latent}, dtype, 0.5, 0.5);
  }
  weights.first_conv = RandomConv({config.decoder_dim, latent, 7}, config.decoder_dim, 7 * latent, dtype, random);
  int64_t in = config.decoder_dim;
  for (const int rate : config.upsample_rates) {
    const int64_t out = in / 2;
    DecoderBlockWeights& block = weights.blocks.emplace_back();
    block.snake = RandomSnake(in, dtype, random);
    block.transposed = RandomConv({in, out, 2 * rate}, out, 2 * in, dtype, random);
    for (int i = 0; i < 3; ++i) {
      ResidualUnitWeights& unit = block.residuals.emplace_back();
      unit.act1 = RandomSnake(out, dtype, random);
      unit.act2 = RandomSnake(out, dtype, random);
      unit.conv1 = RandomConv({out, out, 7}, out, 7 * out, dtype, random);
      unit.conv2 = RandomConv({out, out, 1}, out, 2 * out, dtype, random);
    }
    in = out;
  }
  weights.last_snake = RandomSnake(in, dtype, random);
  weights.last_conv = RandomConv({1, in, 7}, 1, 70 * in, dtype, random);
  return weights;
}

}  // namespace qtts::cpu
