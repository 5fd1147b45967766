// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/predictor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "naive.h"
#include "random_tensors.h"

namespace qtts::cpu {
namespace {

TransformerConfig Transformer(int hidden, int intermediate, int heads, int kv_heads, int head_dim) {
  TransformerConfig config;
  config.hidden_size = hidden;
  config.intermediate_size = intermediate;
  config.num_layers = 2;
  config.num_heads = heads;
  config.num_kv_heads = kv_heads;
  config.head_dim = head_dim;
  config.max_positions = 500;
  config.rms_norm_eps = 1e-6F;
  config.rope_theta = 1e6F;
  return config;
}

TalkerConfig TalkerSizes() {
  TalkerConfig config;
  config.transformer = Transformer(32, 56, 4, 2, 12);
  config.vocab_size = 60;
  config.text_vocab_size = 20;
  config.text_hidden_size = 16;
  config.num_code_groups = 6;
  return config;
}

// With and without the projection between the widths.
class PredictorTest : public testing::TestWithParam<int> {
 protected:
  static PredictorConfig Config() {
    PredictorConfig config;
    config.transformer = Transformer(GetParam(), 40, 2, 1, 16);
    config.vocab_size = 25;
    return config;
  }

  std::vector<int32_t> RandomCodes(size_t rows) {
    std::vector<int32_t> codes;
    for (size_t i = 0; i < rows * 6; ++i) codes.push_back(random_.Integer(0, i % 6 == 0 ? 59 : 24));
    return codes;
  }

  RandomTensors random_{12};
  TalkerWeights talker_ = RandomTalker(TalkerSizes(), DType::kF32, &random_);
  PredictorWeights weights_ = RandomPredictor(TalkerSizes(), Config(), DType::kF32, &random_);
  ThreadPool pool_{2};
  Embedder embedder_{talker_, weights_, pool_};
  Predictor predictor_{Config(), weights_, embedder_, pool_};
};

// Given codes, every group's logits are those of the whole sequence at once.
TEST_P(PredictorTest, TeacherForcedLogitsEqualTheNaiveOnes) {
  EXPECT_EQ(predictor_.code_groups(), 6);
  EXPECT_EQ(predictor_.vocab_size(), 25);
  const std::vector<float> hidden = random_.Floats(32);
  const std::vector<int32_t> forced = RandomCodes(1);
  std::vector<int32_t> codes(6);
  codes[0] = forced[0];
  naive::Matrix logits;
  predictor_.Predict(
      hidden,
      [&](size_t row, int64_t group, std::span<float> values) {
        EXPECT_EQ(row, 0U);
        logits.emplace_back(values.begin(), values.end());
        return forced[static_cast<size_t>(group)];
      },
      codes);
  EXPECT_EQ(codes, forced);

  naive::Matrix inputs = {naive::Vector(hidden.begin(), hidden.end()), naive::Row(talker_.codec_embedding, forced[0])};
  for (size_t g = 1; g < 5; ++g) inputs.push_back(naive::Row(weights_.embeddings[g - 1], forced[g]));
  if (weights_.input_projection.has_value()) inputs = naive::Linear(*weights_.input_projection, inputs);
  EXPECT_EQ(weights_.input_projection.has_value(), GetParam() != 32);
  const naive::Matrix states = naive::Transformer(Config().transformer, weights_.transformer, inputs);
  ASSERT_EQ(logits.size(), 5U);
  for (size_t g = 1; g < 6; ++g) {
    const naive::Vector expected = naive::Linear({weights_.heads[g - 1], {}}, {states[g]})[0];
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(expected[i], logits[g - 1][i], 2e-5);
  }
}

TEST_P(PredictorTest, RowsAndFramesDoNotDisturbEachOther) {
  constexpr size_t kRows = 5;
  const std::vector<float> hidden = random_.Floats(static_cast<int64_t>(kRows) * 32);
  const std::vector<int32_t> starts = RandomCodes(kRows);
  const auto run = [&](size_t first, size_t count, std::vector<float>* logits) {
    std::vector<int32_t> codes(starts.begin() + static_cast<ptrdiff_t>(first * 6),
                               starts.begin() + static_cast<ptrdiff_t>((first + count) * 6));
    logits->resize(count * 5 * 25);
    predictor_.Predict(
        std::span(hidden).subspan(first * 32, count * 32),
        [&](size_t row, int64_t group, std::span<float> values) {
          std::copy(values.begin(), values.end(),
                    logits->begin() + static_cast<ptrdiff_t>((row * 5 + static_cast<size_t>(group) - 1) * 25));
          return static_cast<int32_t>(std::max_element(values.begin(), values.end()) - values.begin());
        },
        codes);
    return codes;
  };
  std::vector<float> together;
  const std::vector<int32_t> codes = run(0, kRows, &together);
  for (size_t row = 0; row < kRows; ++row) {
    std::vector<float> alone;
    const std::vector<int32_t> own = run(row, 1, &alone);
    EXPECT_TRUE(std::equal(own.begin(), own.end(), codes.begin() + static_cast<ptrdiff_t>(row * 6)));
    EXPECT_EQ(0, memcmp(alone.data(), together.data() + row * 125, 125 * sizeof(float)));
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, PredictorTest, testing::Values(32, 20));

}  // namespace
}  // namespace qtts::cpu
