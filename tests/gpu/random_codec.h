// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_GPU_RANDOM_CODEC_H_
#define QTTS_TESTS_GPU_RANDOM_CODEC_H_

#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "checkpoint/weights.h"

namespace qtts::testing {

// Sizes of a codec decoder.
struct CodecShape {
  int codebook_size = 32;
  int codebook_dim = 16;
  int groups = 4;
  int latent = 24;
  int hidden = 20;
  int intermediate = 28;
  int layers = 2;
  int heads = 2;
  int kv_heads = 2;
  int head_dim = 8;
  int window = 5;
  int decoder_dim = 48;
  std::vector<int> upsampling = {2, 2};
  std::vector<int> rates = {3, 2};

  static CodecShape Released();
};

// Random weights of a codec decoder with all parts active: signals keep their magnitude from layer to layer, and few
// samples are clipped.
class RandomCodec {
 public:
  RandomCodec(const CodecShape& shape, uint32_t seed);

  const CodecConfig& config() const { return config_; }
  const CodecWeights& weights() const { return weights_; }
  std::vector<int32_t> Codes(int frames);

 private:
  TensorView Random(std::vector<int64_t> shape, float center, float deviation);
  // Weights that keep the variance of inputs over `inputs` terms, times `gain`.
  TensorView Matrix(std::vector<int64_t> shape, int64_t inputs, float gain = 1);
  ConvWeights Conv(std::vector<int64_t> shape, int64_t inputs, int64_t outputs, float gain = 1);
  LinearWeights Linear(int64_t out, int64_t in, bool bias, float gain = 1);
  SnakeWeights Snake(int64_t channels);

  std::mt19937 random_;
  CodecConfig config_;
  CodecWeights weights_;
  std::deque<std::vector<float>> tensors_;
};

}  // namespace qtts::testing

#endif  // QTTS_TESTS_GPU_RANDOM_CODEC_H_
