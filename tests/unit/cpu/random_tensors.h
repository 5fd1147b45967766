// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_UNIT_CPU_RANDOM_TENSORS_H_
#define QTTS_TESTS_UNIT_CPU_RANDOM_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/weights.h"

namespace qtts::cpu {

// Tensors in memory with random values, and the random numbers of a test. Prints its seed when a test
// fails while it lives.
class RandomTensors {
 public:
  explicit RandomTensors(uint32_t seed) : seed_(seed), random_(seed) {}

  std::string Describe() const { return "seed " + std::to_string(seed_); }

  // Uniform in [-scale, scale] around `mean`, rounded to `dtype`. Lives as long as this object.
  TensorView Tensor(std::vector<int64_t> shape, DType dtype, double scale = 1, double mean = 0);
  std::vector<float> Floats(int64_t n, double scale = 1, double mean = 0);
  int Integer(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  std::mt19937& generator() { return random_; }

 private:
  uint32_t seed_;
  std::mt19937 random_;
  std::deque<std::vector<std::byte>> storage_;
};

// The values of a tensor, decoded bit by bit.
std::vector<double> Values(const TensorView& tensor);

// Random weights of any size, all of one dtype. Values are large enough for every part to matter.
TransformerWeights RandomTransformer(const TransformerConfig& config, bool layer_scale, DType dtype,
                                     RandomTensors* random);
TalkerWeights RandomTalker(const TalkerConfig& config, DType dtype, RandomTensors* random);
PredictorWeights RandomPredictor(const TalkerConfig& talker, const PredictorConfig& config, DType dtype,
                                 RandomTensors* random);
CodecWeights RandomCodec(const CodecConfig& config, DType dtype, RandomTensors* random);

}  // namespace qtts::cpu

#endif  // QTTS_TESTS_UNIT_CPU_RANDOM_TENSORS_H_
