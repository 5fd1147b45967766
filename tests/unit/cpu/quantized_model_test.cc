// SPDX-License-Identifier: LGPL-2.1-or-later
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cpu/bf16_kernels.h"
#include "cpu/embedder.h"
#include "cpu/linear.h"
#include "cpu/predictor.h"
#include "cpu/talker.h"
#include "cpu/transformer.h"
#include "cpu/weight_packer.h"
#include "random_tensors.h"

// A transformer in each arithmetic against the exact one.
namespace qtts::cpu {
namespace {

struct Case {
  Arithmetic arithmetic;
  const char* name;
  double least_snr;  // of a transformer of three layers against F32, in dB
};

class QuantizedModelTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (GetParam().arithmetic == Arithmetic::kBF16 && !HasBF16Products()) {
      GTEST_SKIP() << "this processor has no BF16 products";
    }
  }

  static TransformerConfig Config() {
    TransformerConfig config;
    config.hidden_size = 200;
    config.intermediate_size = 330;
    config.num_layers = 3;
    config.num_heads = 4;
    config.num_kv_heads = 2;
    config.head_dim = 48;
    config.max_positions = 256;
    config.rms_norm_eps = 1e-6F;
    config.rope_theta = 10000;
    config.qk_norm = true;
    return config;
  }

  std::vector<float> Run(Transformer* transformer, std::vector<float> x, const std::vector<int64_t>& pieces) {
    KvCache cache(config_);
    float* at = x.data();
    for (const int64_t rows : pieces) {
      const SequenceRows sequence{&cache, rows};
      transformer->Forward({&sequence, 1}, at);
      at += rows * config_.hidden_size;
    }
    return x;
  }

  RandomTensors random_{99};
  TransformerConfig config_ = Config();
  TransformerWeights weights_ = RandomTransformer(config_, false, DType::kF32, &random_);
  ThreadPool pool_{2};
};

TEST_P(QuantizedModelTest, IsNearTheExactOne) {
  WeightPacker packer(GetParam().arithmetic, pool_);
  Transformer quantized(config_, weights_, pool_, &packer);
  Transformer exact(config_, weights_, pool_);
  const int64_t rows = 40;
  const std::vector<float> x = random_.Floats(rows * config_.hidden_size);
  const std::vector<float> expected = Run(&exact, x, {rows});
  const std::vector<float> got = Run(&quantized, x, {rows});
  double power = 0;
  double noise = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double value = static_cast<double>(expected[i]);
    power += value * value;
    noise += (value - static_cast<double>(got[i])) * (value - static_cast<double>(got[i]));
  }
  const double snr = 10 * std::log10(power / noise);
  RecordProperty("snr", std::to_string(snr));
  EXPECT_GT(snr, GetParam().least_snr);
  EXPECT_LT(snr, 100) << "nothing was quantised";
  EXPECT_GT(packer.bytes(), 0U);
}

TEST_P(QuantizedModelTest, CuttingASequenceAndThreadsChangeNothing) {
  WeightPacker packer(GetParam().arithmetic, pool_);
  Transformer transformer(config_, weights_, pool_, &packer);
  ThreadPool alone(1);
  WeightPacker lone_packer(GetParam().arithmetic, alone);
  Transformer lone(config_, weights_, alone, &lone_packer);
  const int64_t rows = 60;
  const std::vector<float> x = random_.Floats(rows * config_.hidden_size);
  const std::vector<float> whole = Run(&transformer, x, {rows});
  std::vector<int64_t> pieces;
  for (int64_t left = rows; left > 0; left -= pieces.back()) {
    pieces.push_back(std::min<int64_t>(left, random_.Integer(1, 20)));
  }
  for (Transformer* other : {&transformer, &lone}) {
    for (const std::vector<int64_t>& cuts : {pieces, std::vector<int64_t>(rows, 1)}) {
      const std::vector<float> cut = Run(other, x, cuts);
      EXPECT_EQ(0, memcmp(whole.data(), cut.data(), whole.size() * sizeof(float))) << random_.Describe();
    }
  }
}

// Also with weights of 4 bits. Without quantisation they are F32.
TEST_P(QuantizedModelTest, HeadsHaveEightBits) {
  TalkerConfig talker_config;
  talker_config.transformer = config_;
  talker_config.vocab_size = 90;
  talker_config.text_vocab_size = 20;
  talker_config.text_hidden_size = 16;
  talker_config.num_code_groups = 4;
  PredictorConfig predictor_config;
  predictor_config.transformer = config_;
  predictor_config.vocab_size = 70;
  const TalkerWeights talker_weights = RandomTalker(talker_config, DType::kBF16, &random_);
  const PredictorWeights predictor_weights = RandomPredictor(talker_config, predictor_config, DType::kBF16, &random_);
  std::set<const void*> packed;
  WeightPacker packer(GetParam().arithmetic, pool_,
                      [&](std::span<const std::byte> weights) { packed.insert(weights.data()); });
  Talker talker(talker_config, talker_weights, pool_, &packer);
  const Embedder embedder(talker_weights, predictor_weights, pool_);
  const Predictor predictor(predictor_config, predictor_weights, embedder, pool_, &packer);
  const bool quantised = GetParam().arithmetic != Arithmetic::kBF16;
  EXPECT_EQ(packed.contains(talker_weights.codec_head.data), quantised);
  for (const TensorView& head : predictor_weights.heads) EXPECT_EQ(packed.contains(head.data), quantised);

  KvCache cache = talker.NewCache();
  std::vector<float> hidden(200), logits(90), expected(90);
  talker.Prefill(&cache, random_.Floats(1000), hidden.data(), logits.data());
  WeightPacker eight_bits(Arithmetic::kInt8, pool_);
  const Linear head(talker_weights.codec_head, quantised ? &eight_bits : nullptr);
  head.Run(pool_, hidden.data(), 1, expected.data());
  EXPECT_EQ(0, memcmp(expected.data(), logits.data(), expected.size() * sizeof(float)));
}

INSTANTIATE_TEST_SUITE_P(Arithmetics, QuantizedModelTest,
                         testing::Values(Case{Arithmetic::kBF16, "bf16", 40}, Case{Arithmetic::kInt8, "int8", 36},
                                         Case{Arithmetic::kInt4, "int4", 12}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace qtts::cpu
