// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/embedder.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "naive.h"
#include "random_tensors.h"

namespace qtts::cpu {
namespace {

class EmbedderTest : public testing::Test {
 protected:
  static TalkerConfig Talker() {
    TalkerConfig config;
    config.transformer.hidden_size = 21;
    config.vocab_size = 50;
    config.text_vocab_size = 400;
    config.text_hidden_size = 18;
    config.num_code_groups = 4;
    return config;
  }
  static PredictorConfig Predictor() {
    PredictorConfig config;
    config.transformer.hidden_size = 8;
    config.vocab_size = 30;
    return config;
  }

  std::vector<float> Embed(const std::vector<PromptRow>& rows, const std::vector<float>& x_vector = {}) {
    std::vector<float> y(rows.size() * 21);
    embedder_.Embed(rows, x_vector, y.data());
    return y;
  }

  RandomTensors random_{99};
  TalkerWeights talker_ = RandomTalker(Talker(), DType::kBF16, &random_);
  PredictorWeights predictor_ = RandomPredictor(Talker(), Predictor(), DType::kF16, &random_);
  ThreadPool pool_{1};
  Embedder embedder_{talker_, predictor_, pool_};
};

TEST_F(EmbedderTest, EveryKindOfRow) {
  const std::vector<float> x_vector = random_.Floats(21);
  const std::vector<PromptRow> rows = {
      {5, {}, false},           {kNoText, {49}, false},    {399, {7}, false}, {kNoText, {49, 29, 0, 3}, false},
      {5, {1, 2, 3, 4}, false}, {kNoText, {}, true},       {0, {}, true},     {6, {3}, true},
      {kNoText, {}, false},     {399, {0, 0, 0, 0}, true},
  };
  const std::vector<float> got = Embed(rows, x_vector);
  for (size_t r = 0; r < rows.size(); ++r) {
    naive::Vector expected(21);
    const auto add = [&](const naive::Vector& v) {
      for (size_t i = 0; i < v.size(); ++i) expected[i] += v[i];
    };
    if (rows[r].text_id != kNoText) add(naive::Text(talker_, rows[r].text_id));
    if (rows[r].x_vector) add(naive::Vector(x_vector.begin(), x_vector.end()));
    for (size_t g = 0; g < rows[r].codes.size(); ++g) {
      add(naive::Row(g == 0 ? talker_.codec_embedding : predictor_.embeddings[g - 1], rows[r].codes[g]));
    }
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(expected[i], static_cast<double>(got[r * 21 + i]), 1e-5) << "row " << r;
    }
  }
}

// More texts than the cache holds: evicted entries are computed again, with the same bits.
TEST_F(EmbedderTest, ForgettingTextsChangesNothing) {
  std::vector<PromptRow> rows;
  for (int32_t id = 0; id < 400; ++id) rows.push_back({id, {}, false});
  const std::vector<float> together = Embed(rows);
  std::vector<float> one_by_one;
  for (int round = 0; round < 2; ++round) {
    one_by_one.clear();
    for (const PromptRow& row : rows) {
      const std::vector<float> y = Embed({row});
      one_by_one.insert(one_by_one.end(), y.begin(), y.end());
    }
  }
  EXPECT_EQ(0, memcmp(together.data(), one_by_one.data(), together.size() * sizeof(float)));
}

}  // namespace
}  // namespace qtts::cpu
