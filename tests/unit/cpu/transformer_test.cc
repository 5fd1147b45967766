// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/transformer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "naive.h"
#include "random_tensors.h"

namespace qtts::cpu {
namespace {

struct Case {
  const char* name;
  TransformerConfig config;
  bool layer_scale;
  DType dtype;
  double tolerance;  // for outputs of magnitude 1
};

TransformerConfig Config(int hidden, int intermediate, int layers, int heads, int kv_heads, int head_dim) {
  TransformerConfig config;
  config.hidden_size = hidden;
  config.intermediate_size = intermediate;
  config.num_layers = layers;
  config.num_heads = heads;
  config.num_kv_heads = kv_heads;
  config.head_dim = head_dim;
  config.max_positions = 1000;
  config.rms_norm_eps = 1e-6F;
  config.rope_theta = 10000;
  return config;
}

std::vector<Case> Cases() {
  std::vector<Case> cases = {
      {"TalkerLike", Config(48, 80, 3, 4, 2, 16), false, DType::kBF16, 2e-5},
      {"PredictorLike", Config(40, 96, 2, 6, 1, 32), false, DType::kF16, 2e-5},
      {"CodecLike", Config(32, 64, 3, 4, 4, 8), true, DType::kF32, 2e-5},
      {"OddSizes", Config(19, 37, 2, 3, 3, 6), false, DType::kF32, 2e-5},
      {"WithBiases", Config(24, 48, 2, 2, 1, 20), false, DType::kF32, 2e-5},
      // Large enough for several threads per loop.
      {"Wide", Config(160, 320, 1, 8, 2, 32), false, DType::kBF16, 5e-5},
  };
  cases[2].config.qk_norm = false;
  cases[2].config.sliding_window = 7;
  cases[2].config.rms_norm_eps = 1e-5F;
  cases[3].config.sliding_window = 1;
  cases[4].config.attention_bias = true;
  cases[4].config.rope_theta = 1e6F;
  return cases;
}

class TransformerTest : public testing::TestWithParam<Case> {
 protected:
  TransformerTest()
      : random_(7),
        config_(GetParam().config),
        weights_(RandomTransformer(config_, GetParam().layer_scale, GetParam().dtype, &random_)),
        pool_(2),
        transformer_(config_, weights_, pool_) {}

  // Runs x as one sequence, cut into `pieces`.
  std::vector<float> Run(std::vector<float> x, const std::vector<int64_t>& pieces) {
    KvCache cache(config_);
    float* at = x.data();
    for (const int64_t rows : pieces) {
      const SequenceRows sequence{&cache, rows};
      transformer_.Forward({&sequence, 1}, at);
      at += rows * config_.hidden_size;
    }
    return x;
  }

  RandomTensors random_;
  TransformerConfig config_;
  TransformerWeights weights_;
  ThreadPool pool_;
  Transformer transformer_;
};

void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(0, memcmp(a.data(), b.data(), a.size() * sizeof(float)));
}

TEST_P(TransformerTest, EqualsTheNaiveOne) {
  const int64_t rows = 30;
  const std::vector<float> x = random_.Floats(rows * config_.hidden_size, 2);
  naive::Matrix inputs;
  for (int64_t t = 0; t < rows; ++t) {
    const auto begin = x.begin() + t * config_.hidden_size;
    inputs.emplace_back(begin, begin + config_.hidden_size);
  }
  const naive::Matrix expected = naive::Transformer(config_, weights_, inputs);
  const std::vector<float> got = Run(x, {rows});
  for (size_t i = 0; i < got.size(); ++i) {
    const auto hidden = static_cast<size_t>(config_.hidden_size);
    ASSERT_NEAR(expected[i / hidden][i % hidden], static_cast<double>(got[i]), GetParam().tolerance)
        << "row " << i / hidden << ", " << random_.Describe();
  }
}

// 150 rows: several pages of the cache, and windows shorter than the cache.
TEST_P(TransformerTest, CuttingASequenceChangesNothing) {
  const int64_t rows = 150;
  const std::vector<float> x = random_.Floats(rows * config_.hidden_size);
  const std::vector<float> whole = Run(x, {rows});
  ExpectSameBits(whole, Run(x, std::vector<int64_t>(rows, 1)));
  std::vector<int64_t> pieces;
  for (int64_t left = rows; left > 0; left -= pieces.back()) {
    pieces.push_back(std::min<int64_t>(left, random_.Integer(1, 40)));
  }
  ExpectSameBits(whole, Run(x, pieces));
}

TEST_P(TransformerTest, SequencesDoNotDisturbEachOther) {
  const int64_t hidden = config_.hidden_size;
  std::vector<std::vector<float>> inputs, alone;
  std::vector<KvCache> caches;
  const std::vector<int64_t> lengths = {12, 70, 1, 30};
  for (const int64_t length : lengths) {
    inputs.push_back(random_.Floats((length + 3) * hidden));
    alone.push_back(Run(inputs.back(), {length, 2, 1}));
    caches.emplace_back(config_);
  }
  int64_t done = 0;
  for (int pass = 0; pass < 3; ++pass) {
    std::vector<SequenceRows> sequences;
    std::vector<float> x;
    for (size_t i = 0; i < lengths.size(); ++i) {
      const int64_t begin = caches[i].length();
      const int64_t rows = pass == 0 ? lengths[i] : pass == 1 ? 2 : 1;
      sequences.push_back({&caches[i], rows});
      x.insert(x.end(), inputs[i].begin() + begin * hidden, inputs[i].begin() + (begin + rows) * hidden);
    }
    transformer_.Forward(sequences, x.data());
    auto at = x.begin();
    for (size_t i = 0; i < lengths.size(); ++i) {
      const int64_t rows = sequences[i].rows;
      const int64_t begin = caches[i].length() - rows;
      ExpectSameBits(std::vector<float>(at, at + rows * hidden),
                     std::vector<float>(alone[i].begin() + begin * hidden, alone[i].begin() + (begin + rows) * hidden));
      at += rows * hidden;
      ++done;
    }
  }
  EXPECT_EQ(done, 12);
}

TEST_P(TransformerTest, ThreadsChangeNothing) {
  const int64_t rows = 100;
  const std::vector<float> x = random_.Floats(rows * config_.hidden_size);
  const std::vector<float> two = Run(x, {rows});
  for (const int threads : {1, 5}) {
    ThreadPool pool(threads);
    Transformer other(config_, weights_, pool);
    std::vector<float> y = x;
    KvCache cache(config_);
    const SequenceRows sequence{&cache, rows};
    other.Forward({&sequence, 1}, y.data());
    ExpectSameBits(two, y);
  }
}

TEST_P(TransformerTest, ClearedCacheStartsAnew) {
  const std::vector<float> x = random_.Floats(80 * config_.hidden_size);
  KvCache cache(config_);
  std::vector<float> first = x;
  std::vector<float> second = x;
  const SequenceRows sequence{&cache, 80};
  transformer_.Forward({&sequence, 1}, first.data());
  EXPECT_EQ(cache.length(), 80);
  cache.Clear();
  EXPECT_EQ(cache.length(), 0);
  transformer_.Forward({&sequence, 1}, second.data());
  ExpectSameBits(first, second);
}

INSTANTIATE_TEST_SUITE_P(Structures, TransformerTest, testing::ValuesIn(Cases()),
                         [](const auto& structure) { return std::string(structure.param.name); });

// The window counts the query itself: with 1, every position sees only itself.
TEST(KvCacheTest, VisiblePositions) {
  constexpr int kLayers = 2;
  constexpr int kHeads = 2;
  TransformerConfig config = Config(8, 8, kLayers, 2, kHeads, 4);
  // A different value for each position, layer and head.
  const auto value_of = [](int64_t position, int layer, int head) {
    return static_cast<float>((position * kLayers + layer) * kHeads + head);
  };
  for (const int window : {0, 1, 5, 64, 65, 100}) {
    config.sliding_window = window;
    KvCache cache(config);
    for (int64_t position = 0; position < 300; ++position) {
      cache.Extend(1);
      for (int layer = 0; layer < kLayers; ++layer) {
        for (int head = 0; head < kHeads; ++head) {
          std::fill_n(cache.Key(layer, head, position), 4, value_of(position, layer, head));
          std::fill_n(cache.Value(layer, head, position), 4, -value_of(position, layer, head));
        }
      }
      const int layer = static_cast<int>(position % kLayers);
      const int head = static_cast<int>(position / kLayers % kHeads);
      std::vector<KeyValueSpan> spans;
      cache.Visible(layer, head, position, &spans);
      int64_t expected = window == 0 ? 0 : std::max<int64_t>(0, position - window + 1);
      for (const KeyValueSpan& span : spans) {
        for (int64_t i = 0; i < span.count; ++i, ++expected) {
          ASSERT_EQ(span.keys[i * config.head_dim], value_of(expected, layer, head));
          ASSERT_EQ(span.values[i * config.head_dim + 3], -value_of(expected, layer, head));
        }
      }
      ASSERT_EQ(expected, position + 1);
    }
  }
}

}  // namespace
}  // namespace qtts::cpu
