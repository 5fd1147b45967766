// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/prompt_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cpu/talker.h"
#include "prompt/prompt_prefix.h"
#include "random_tensors.h"

namespace qtts::cpu {
namespace {

class PromptCacheTest : public testing::Test {
 protected:
  static TransformerConfig Config() {
    TransformerConfig config;
    config.hidden_size = 24;
    config.intermediate_size = 40;
    config.num_layers = 2;
    config.num_heads = 4;
    config.num_kv_heads = 2;
    config.head_dim = 12;
    config.max_positions = 400;
    config.rms_norm_eps = 1e-6F;
    config.rope_theta = 1e6F;
    return config;
  }

  Prompt RandomPrompt(size_t rows, size_t constant) {
    Prompt prompt;
    for (size_t i = 0; i < rows; ++i) {
      PromptRow row{random_.Integer(kNoText, 300), {}, random_.Integer(0, 4) == 0};
      const int codes = random_.Integer(0, 2);
      for (int c = 0; c < (codes == 2 ? 16 : codes); ++c) row.codes.push_back(random_.Integer(0, 2047));
      prompt.rows.push_back(row);
    }
    prompt.rows.front().x_vector = true;
    prompt.constant_rows = constant;
    prompt.x_vector = random_.Floats(24);
    return prompt;
  }

  // A sequence of so many random positions.
  KvCache RandomCache(size_t positions) {
    KvCache cache(Config());
    cache.Extend(static_cast<int64_t>(positions));
    for (int layer = 0; layer < Config().num_layers; ++layer) {
      for (size_t p = 0; p < positions; ++p) {
        for (int head = 0; head < Config().num_kv_heads; ++head) {
          const auto position = static_cast<int64_t>(p);
          for (float* const row : {cache.Key(layer, head, position), cache.Value(layer, head, position)}) {
            const std::vector<float> values = random_.Floats(Config().head_dim);
            std::copy(values.begin(), values.end(), row);
          }
        }
      }
    }
    return cache;
  }

  static void ExpectSamePositions(KvCache* a, KvCache* b, size_t positions) {
    const size_t bytes = static_cast<size_t>(Config().head_dim) * sizeof(float);
    for (int layer = 0; layer < Config().num_layers; ++layer) {
      for (int64_t p = 0; p < static_cast<int64_t>(positions); ++p) {
        for (int head = 0; head < Config().num_kv_heads; ++head) {
          SCOPED_TRACE(testing::Message() << layer << ' ' << head << ' ' << p);
          ASSERT_EQ(0, memcmp(a->Key(layer, head, p), b->Key(layer, head, p), bytes));
          ASSERT_EQ(0, memcmp(a->Value(layer, head, p), b->Value(layer, head, p), bytes));
        }
      }
    }
  }

  bool Knows(const Prompt& prompt) {
    KvCache cache(Config());
    return cache_.RestorePrefix(prompt, &cache);
  }

  RandomTensors random_{std::random_device()()};
  testing::ScopedTrace trace_{__FILE__, __LINE__, random_.Describe()};
  PromptCache cache_;
};

// Every length near that of a page.
TEST_F(PromptCacheTest, GivesBackTheConstantRows) {
  for (const size_t constant : {1, 9, 63, 64, 65, 127, 128, 129, 200}) {
    SCOPED_TRACE(constant);
    const size_t rows = constant + static_cast<size_t>(random_.Integer(1, 100));
    const Prompt prompt = RandomPrompt(rows, constant);
    KvCache computed = RandomCache(rows);
    KvCache restored(Config());
    ASSERT_FALSE(cache_.RestorePrefix(prompt, &restored));
    EXPECT_EQ(restored.length(), 0);
    cache_.KeepPrefix(prompt, computed);
    ASSERT_TRUE(cache_.RestorePrefix(prompt, &restored));
    ASSERT_EQ(restored.length(), static_cast<int64_t>(constant));
    ExpectSamePositions(&restored, &computed, constant);
    // Restored positions are a copy: writing to them does not change the cached ones.
    restored.Extend(80);
    std::fill_n(restored.Key(0, 0, static_cast<int64_t>(constant)), Config().head_dim, 7.0F);
    std::fill_n(restored.Key(0, 0, 0), Config().head_dim, 7.0F);
    KvCache again(Config());
    ASSERT_TRUE(cache_.RestorePrefix(prompt, &again));
    ExpectSamePositions(&again, &computed, constant);
  }
}

TEST_F(PromptCacheTest, IsOfItsConstantRowsAndVectorAlone) {
  constexpr size_t kConstant = 12;
  const Prompt prompt = RandomPrompt(20, kConstant);
  cache_.KeepPrefix(prompt, RandomCache(20));
  Prompt other = prompt;
  for (size_t i = kConstant; i < other.rows.size(); ++i) other.rows[i].text_id = 301;
  other.rows.resize(kConstant + 1);
  EXPECT_TRUE(Knows(other));
  for (size_t i = 0; i < kConstant; ++i) {
    SCOPED_TRACE(i);
    other = prompt;
    ++other.rows[i].text_id;
    EXPECT_FALSE(Knows(other));
    other = prompt;
    other.rows[i].codes.push_back(1);
    EXPECT_FALSE(Knows(other));
    other = prompt;
    other.rows[i].x_vector = !other.rows[i].x_vector;
    EXPECT_FALSE(Knows(other));
  }
  other = prompt;
  other.constant_rows = kConstant - 1;
  EXPECT_FALSE(Knows(other));
  other = prompt;
  other.x_vector[static_cast<size_t>(random_.Integer(0, 23))] += 1;
  EXPECT_FALSE(Knows(other));
}

TEST_F(PromptCacheTest, TheLastRowIsNeverOne) {
  const Prompt prompt = RandomPrompt(10, 10);
  EXPECT_EQ(PrefixRows(prompt), 9U);
  cache_.KeepPrefix(prompt, RandomCache(10));
  KvCache cache(Config());
  ASSERT_TRUE(cache_.RestorePrefix(prompt, &cache));
  EXPECT_EQ(cache.length(), 9);
  const Prompt none = RandomPrompt(10, 0);
  cache_.KeepPrefix(none, RandomCache(10));
  EXPECT_FALSE(Knows(none));
}

// A sliding window has dropped the first rows before the last ones come.
TEST_F(PromptCacheTest, NothingIsKeptOfWhatIsForgotten) {
  TransformerConfig config = Config();
  config.sliding_window = 70;
  KvCache cache(config);
  const Prompt prompt = RandomPrompt(300, 20);
  for (int i = 0; i < 300; ++i) cache.Extend(1);
  cache_.KeepPrefix(prompt, cache);
  EXPECT_FALSE(Knows(prompt));
}

TEST_F(PromptCacheTest, IsBounded) {
  std::vector<Prompt> prompts;
  for (size_t i = 0; i <= PromptCache::kMostValues; ++i) {
    prompts.push_back(RandomPrompt(4, 3));
    cache_.KeepPrefix(prompts.back(), RandomCache(4));
    EXPECT_TRUE(Knows(prompts.front()));
  }
  for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(Knows(prompts[i]), i != 1) << i;
}

}  // namespace
}  // namespace qtts::cpu
