// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/talker.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "naive.h"
#include "random_tensors.h"

namespace qtts::cpu {
namespace {

class TalkerTest : public testing::Test {
 protected:
  static TalkerConfig Config() {
    TalkerConfig config;
    config.transformer.hidden_size = 32;
    config.transformer.intermediate_size = 56;
    config.transformer.num_layers = 2;
    config.transformer.num_heads = 4;
    config.transformer.num_kv_heads = 2;
    config.transformer.head_dim = 12;
    config.transformer.max_positions = 500;
    config.transformer.rms_norm_eps = 1e-6F;
    config.transformer.rope_theta = 1e6F;
    config.vocab_size = 60;
    config.text_vocab_size = 20;
    config.text_hidden_size = 16;
    config.num_code_groups = 6;
    return config;
  }

  struct Output {
    std::vector<float> hidden = std::vector<float>(32);
    std::vector<float> logits = std::vector<float>(60);
  };

  Output Prefill(KvCache* cache, const std::vector<float>& inputs) {
    Output output;
    talker_.Prefill(cache, inputs, output.hidden.data(), output.logits.data());
    return output;
  }

  RandomTensors random_{13};
  TalkerWeights weights_ = RandomTalker(Config(), DType::kBF16, &random_);
  ThreadPool pool_{2};
  Talker talker_{Config(), weights_, pool_};
};

void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(0, memcmp(a.data(), b.data(), a.size() * sizeof(float)));
}

TEST_F(TalkerTest, PrefillEqualsTheNaiveOne) {
  const std::vector<float> inputs = random_.Floats(25 * 32);
  KvCache cache = talker_.NewCache();
  const Output got = Prefill(&cache, inputs);
  naive::Matrix rows;
  for (auto row = inputs.begin(); row != inputs.end(); row += 32) rows.emplace_back(row, row + 32);
  const naive::Vector hidden = naive::Transformer(Config().transformer, weights_.transformer, rows).back();
  const naive::Vector logits = naive::Linear({weights_.codec_head, {}}, {hidden})[0];
  for (size_t i = 0; i < hidden.size(); ++i) EXPECT_NEAR(hidden[i], static_cast<double>(got.hidden[i]), 2e-5);
  for (size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(logits[i], static_cast<double>(got.logits[i]), 2e-5);
}

// 300 rows, more than one step of a prefill.
TEST_F(TalkerTest, PrefillEqualsSteps) {
  const std::vector<float> inputs = random_.Floats(300 * 32);
  KvCache whole_cache = talker_.NewCache();
  const Output whole = Prefill(&whole_cache, inputs);
  EXPECT_EQ(whole_cache.length(), 300);

  KvCache cache = talker_.NewCache();
  Prefill(&cache, std::vector<float>(inputs.begin(), inputs.begin() + 170 * 32));
  Output stepped;
  for (int row = 170; row < 300; ++row) {
    stepped.hidden.assign(inputs.begin() + row * 32, inputs.begin() + (row + 1) * 32);
    KvCache* const caches[] = {&cache};
    talker_.Step(caches, stepped.hidden.data(), stepped.logits.data());
  }
  ExpectSameBits(whole.hidden, stepped.hidden);
  ExpectSameBits(whole.logits, stepped.logits);
}

// Cut at every row, and at random.
// Check: 32
TEST_F(TalkerTest, PrefillInPiecesEqualsTheWhole) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  constexpr int64_t kRows = 70;
  RandomTensors tensors(seed);
  const std::vector<float> inputs = tensors.Floats(kRows * 32);
  const auto rows = [&](int64_t begin, int64_t end) {
    return std::span(inputs).subspan(static_cast<size_t>(begin * 32), static_cast<size_t>((end - begin) * 32));
  };
  KvCache whole_cache = talker_.NewCache();
  const Output whole = Prefill(&whole_cache, inputs);
  const auto expect_same = [&](const std::vector<int64_t>& cuts) {
    KvCache cache = talker_.NewCache();
    int64_t begin = 0;
    for (const int64_t cut : cuts) {
      talker_.Prefill(&cache, rows(begin, cut));
      begin = cut;
    }
    Output pieces;
    talker_.Prefill(&cache, rows(begin, kRows), pieces.hidden.data(), pieces.logits.data());
    ExpectSameBits(whole.hidden, pieces.hidden);
    ExpectSameBits(whole.logits, pieces.logits);
    for (int layer = 0; layer < Config().transformer.num_layers; ++layer) {
      for (int64_t row = 0; row < kRows; ++row) {
        for (int head = 0; head < Config().transformer.num_kv_heads; ++head) {
          SCOPED_TRACE(testing::Message() << layer << ' ' << head << ' ' << row);
          const size_t bytes = static_cast<size_t>(Config().transformer.head_dim) * sizeof(float);
          ASSERT_EQ(0, memcmp(whole_cache.Key(layer, head, row), cache.Key(layer, head, row), bytes));
          ASSERT_EQ(0, memcmp(whole_cache.Value(layer, head, row), cache.Value(layer, head, row), bytes));
        }
      }
    }
  };
  for (int64_t cut = 1; cut < kRows; ++cut) {
    SCOPED_TRACE(cut);
    expect_same({cut});
  }
  for (int i = 0; i < 20; ++i) {
    std::vector<int64_t> cuts;
    for (int64_t at = 1; at < kRows; ++at) {
      if (random() % 5 == 0) cuts.push_back(at);
    }
    expect_same(cuts);
  }
}

TEST_F(TalkerTest, StepsOfSeveralSequencesEqualEachAlone) {
  constexpr size_t kSequences = 5;
  std::vector<KvCache> together, alone;
  for (size_t i = 0; i < kSequences; ++i) {
    const std::vector<float> prompt = random_.Floats(static_cast<int64_t>(3 + 17 * i) * 32);
    together.push_back(talker_.NewCache());
    alone.push_back(talker_.NewCache());
    Prefill(&together.back(), prompt);
    Prefill(&alone.back(), prompt);
  }
  for (int step = 0; step < 3; ++step) {
    std::vector<float> hidden = random_.Floats(kSequences * 32);
    const std::vector<float> inputs = hidden;
    std::vector<float> logits(kSequences * 60);
    std::vector<KvCache*> caches;
    for (KvCache& cache : together) caches.push_back(&cache);
    talker_.Step(caches, hidden.data(), logits.data());
    for (size_t i = 0; i < kSequences; ++i) {
      Output own;
      own.hidden.assign(&inputs[i * 32], &inputs[i * 32] + 32);
      KvCache* const cache[] = {&alone[i]};
      talker_.Step(cache, own.hidden.data(), own.logits.data());
      ExpectSameBits(own.hidden, std::vector<float>(&hidden[i * 32], &hidden[i * 32] + 32));
      ExpectSameBits(own.logits, std::vector<float>(&logits[i * 60], &logits[i * 60] + 60));
    }
  }
}

}  // namespace
}  // namespace qtts::cpu
