// SPDX-License-Identifier: LGPL-2.1-or-later
#include "sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "sampling/philox.h"

namespace qtts {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TokenSampling Greedy() {
  TokenSampling sampling;
  sampling.do_sample = false;
  return sampling;
}

TokenSampling Plain() { return {.do_sample = true, .temperature = 1.0F, .top_k = 0, .top_p = 1.0F}; }

int32_t Choose(std::vector<float> logits, const TokenSampling& sampling, const DrawPosition& position = {}) {
  return SampleToken(logits, sampling, position);
}

// The probability of each id by the official rules, computed naively.
std::vector<double> Probabilities(const std::vector<float>& logits, const TokenSampling& sampling) {
  std::vector<double> scores(logits.begin(), logits.end());
  for (double& s : scores) s /= static_cast<double>(sampling.temperature);
  if (sampling.top_k > 0) {
    std::vector<double> sorted = scores;
    std::sort(sorted.rbegin(), sorted.rend());
    const double threshold = sorted[std::min(sorted.size(), static_cast<size_t>(sampling.top_k)) - 1];
    for (double& s : scores) {
      if (s < threshold) s = -std::numeric_limits<double>::infinity();
    }
  }
  const auto softmax = [&scores] {
    std::vector<double> p(scores.size());
    const double largest = *std::max_element(scores.begin(), scores.end());
    for (size_t i = 0; i < p.size(); ++i) p[i] = std::exp(scores[i] - largest);
    const double total = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& x : p) x /= total;
    return p;
  };
  if (sampling.top_p < 1.0F) {
    const std::vector<double> p = softmax();
    std::vector<size_t> order(p.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] < p[b]; });
    double cumulative = 0;
    for (size_t i = 0; i + 1 < order.size(); ++i) {
      cumulative += p[order[i]];
      if (cumulative <= 1.0 - static_cast<double>(sampling.top_p)) {
        scores[order[i]] = -std::numeric_limits<double>::infinity();
      }
    }
  }
  return softmax();
}

// Draws often and compares the counts with the reference by the chi-square statistic.
void ExpectDistribution(const std::vector<float>& logits, const TokenSampling& sampling, uint64_t seed) {
  constexpr int kDraws = 20000;
  const std::vector<double> expected = Probabilities(logits, sampling);
  std::vector<int> counts(logits.size());
  for (uint32_t frame = 0; frame < kDraws; ++frame) {
    const int32_t id = Choose(logits, sampling, {seed, frame, 3});
    ASSERT_GE(id, 0);
    ASSERT_LT(static_cast<size_t>(id), logits.size());
    ++counts[static_cast<size_t>(id)];
  }
  // Ids with an expected count below 10 are counted together.
  double chi2 = 0;
  int cells = 0;
  double rare_expected = 0;
  int rare_count = 0;
  const auto add = [&](double want, int got) {
    chi2 += (got - want) * (got - want) / want;
    ++cells;
  };
  for (size_t id = 0; id < counts.size(); ++id) {
    const double want = expected[id] * kDraws;
    if (expected[id] == 0) {
      EXPECT_EQ(counts[id], 0) << "id " << id << " was to be dropped";
    } else if (want < 10) {
      rare_expected += want;
      rare_count += counts[id];
    } else {
      add(want, counts[id]);
    }
  }
  if (rare_expected >= 1) add(rare_expected, rare_count);
  const double freedom = std::max(1, cells - 1);
  EXPECT_LT(chi2, freedom + 5 * std::sqrt(2 * freedom) + 10) << cells << " cells, seed " << seed;
}

TEST(SampleTokenTest, GreedyTakesTheFirstLargest) {
  EXPECT_EQ(Choose({-3, 2, 7, 7, 1}, Greedy()), 2);
  EXPECT_EQ(Choose({-kInf, -5, -kInf}, Greedy()), 1);
}

TEST(SampleTokenTest, GreedyIgnoresTheOtherSettings) {
  TokenSampling sampling = Greedy();
  sampling.temperature = 100;
  sampling.top_k = 1;
  sampling.top_p = 0.1F;
  EXPECT_EQ(Choose({1, 9, 3}, sampling), 1);
}

TEST(SampleTokenTest, SameAsTheDefinitionOfGumbelMax) {
  std::mt19937 random(41);
  std::normal_distribution<float> normal(0, 3);
  for (uint32_t round = 0; round < 50; ++round) {
    std::vector<float> logits(37);
    for (float& logit : logits) logit = normal(random);
    const DrawPosition position{99 + round, round, round % 16};
    size_t best = 0;
    double best_score = -std::numeric_limits<double>::infinity();
    for (size_t id = 0; id < logits.size(); ++id) {
      const PhiloxWords words = Philox4x32({{position.frame, position.codebook, static_cast<uint32_t>(id), 0}},
                                           static_cast<uint32_t>(position.seed), 0);
      const double u = ((words.v[0] >> 9) + 0.5) / 8388608.0;
      const double score = logits[id] - std::log(-std::log(u));
      if (score > best_score) {
        best_score = score;
        best = id;
      }
    }
    EXPECT_EQ(Choose(logits, Plain(), position), static_cast<int32_t>(best));
  }
}

TEST(SampleTokenTest, DistributionsMatchTheReference) {
  std::mt19937 random(17);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(40);
  for (float& logit : logits) logit = normal(random);
  logits[3] = -kInf;
  logits[17] = logits[18] = logits[19];
  const std::vector<TokenSampling> all = {
      {true, 1.0F, 0, 1.0F},    {true, 0.9F, 50, 1.0F},  {true, 0.5F, 5, 1.0F},
      {true, 2.0F, 1, 1.0F},    {true, 1.0F, 0, 0.8F},   {true, 0.7F, 10, 0.6F},
      {true, 1.3F, 0, 0.0001F}, {true, 1.5F, 40, 0.95F}, {true, 1.0F, 39, 0.5F},
  };
  uint64_t seed = 1000;
  for (const TokenSampling& sampling : all) {
    SCOPED_TRACE(testing::Message() << "temperature " << sampling.temperature << ", top_k " << sampling.top_k
                                    << ", top_p " << sampling.top_p);
    ExpectDistribution(logits, sampling, seed++);
  }
}

TEST(SampleTokenTest, TiesAtTheTopKThresholdStay) {
  TokenSampling sampling = Plain();
  sampling.top_k = 2;
  std::map<int32_t, int> counts;
  for (uint32_t frame = 0; frame < 500; ++frame) ++counts[Choose({1, 3, 1, 2, 2, 2}, sampling, {5, frame, 0})];
  EXPECT_EQ(counts.size(), 4U);
  EXPECT_EQ(counts.count(0), 0U);
  EXPECT_EQ(counts.count(2), 0U);
}

TEST(SampleTokenTest, TopKBeyondTheVocabularyKeepsAll) {
  TokenSampling sampling = Plain();
  sampling.top_k = 100;
  std::map<int32_t, int> counts;
  for (uint32_t frame = 0; frame < 500; ++frame) ++counts[Choose({1, 1, 1}, sampling, {6, frame, 0})];
  EXPECT_EQ(counts.size(), 3U);
}

TEST(SampleTokenTest, TopPDropsLowerIdsFirstAmongEquals) {
  TokenSampling sampling = Plain();
  sampling.top_p = 0.5F;
  // Each has probability 1/4: two may go before the sum passes 1/2.
  std::map<int32_t, int> counts;
  for (uint32_t frame = 0; frame < 300; ++frame) ++counts[Choose({0, 0, 0, 0}, sampling, {7, frame, 0})];
  EXPECT_EQ(counts.size(), 2U);
  EXPECT_TRUE(counts.contains(2));
  EXPECT_TRUE(counts.contains(3));
}

TEST(SampleTokenTest, TinyTemperatureIsGreedy) {
  TokenSampling sampling = Plain();
  sampling.temperature = 1e-30F;
  for (uint32_t frame = 0; frame < 50; ++frame) {
    EXPECT_EQ(Choose({100, 101, 99.5F}, sampling, {8, frame, 0}), 1);
  }
}

TEST(SampleTokenTest, DependsOnSeedFrameAndCodebookOnly) {
  std::vector<float> logits(1000, 0.0F);
  const int32_t id = Choose(logits, Plain(), {1, 2, 3});
  EXPECT_EQ(Choose(logits, Plain(), {1, 2, 3}), id);
  EXPECT_NE(Choose(logits, Plain(), {2, 2, 3}), id);
  EXPECT_NE(Choose(logits, Plain(), {1, 3, 3}), id);
  EXPECT_NE(Choose(logits, Plain(), {1, 2, 4}), id);
}

TEST(SampleTokenTest, UnusableLogitsChooseNothing) {
  for (const TokenSampling& sampling : {Greedy(), Plain(), TokenSampling{}}) {
    EXPECT_EQ(Choose({1, kNaN, 2}, sampling), kNoToken);
    EXPECT_EQ(Choose({1, kInf, 2}, sampling), kNoToken);
    EXPECT_EQ(Choose({-kInf, -kInf}, sampling), kNoToken);
    EXPECT_EQ(Choose({}, sampling), kNoToken);
  }
}

constexpr int kCodes = 20;
constexpr int kVocab = kCodes + 1024;
constexpr int kEos = kCodes + 7;

GenerationSettings GreedySettings(float penalty) {
  GenerationSettings settings;
  settings.talker = Greedy();
  settings.repetition_penalty = penalty;
  return settings;
}

std::vector<float> Logits(std::initializer_list<std::pair<int, float>> values, float rest = -10) {
  std::vector<float> logits(kVocab, rest);
  for (const auto& [id, value] : values) logits[static_cast<size_t>(id)] = value;
  return logits;
}

int32_t Next(TalkerSampler* sampler, std::vector<float> logits) { return sampler->Sample(logits); }

TEST(TalkerSamplerTest, ControlIdsAreNeverChosen) {
  TalkerSampler sampler(kVocab, kEos, GreedySettings(1), 0);
  EXPECT_EQ(Next(&sampler, Logits({{kCodes, 9}, {kVocab - 1, 8}, {kCodes - 1, 1}})), kCodes - 1);
}

TEST(TalkerSamplerTest, NoEndBeforeTwoIds) {
  TalkerSampler sampler(kVocab, kEos, GreedySettings(1), 0);
  const std::vector<float> logits = Logits({{kEos, 9}, {4, 1}});
  EXPECT_EQ(Next(&sampler, logits), 4);
  EXPECT_EQ(Next(&sampler, logits), 4);
  EXPECT_EQ(sampler.count(), 2);
  EXPECT_EQ(Next(&sampler, logits), kEos);
  EXPECT_EQ(sampler.count(), 3);
}

TEST(TalkerSamplerTest, PenaltyDividesPositiveAndMultipliesNegativeOncePerId) {
  TalkerSampler sampler(kVocab, kEos, GreedySettings(2), 0);
  EXPECT_EQ(Next(&sampler, Logits({{1, 8}, {2, 5}})), 1);
  EXPECT_EQ(Next(&sampler, Logits({{1, 8}, {2, 3}})), 1);     // 4 > 3
  EXPECT_EQ(Next(&sampler, Logits({{1, 8}, {2, 3.5F}})), 1);  // chosen twice, but penalised once
  EXPECT_EQ(Next(&sampler, Logits({{1, 8}, {2, 4.5F}})), 2);
  EXPECT_EQ(Next(&sampler, Logits({{1, -2}, {2, -2}, {3, -3.5F}})), 3);  // -4, -4 < -3.5
  EXPECT_EQ(Next(&sampler, Logits({{1, 0}, {4, -0.5F}})), 1);            // 0 stays 0
}

TEST(TalkerSamplerTest, PenaltyReachesTheWholeHistory) {
  TalkerSampler sampler(kVocab, kEos, GreedySettings(2), 0);
  EXPECT_EQ(Next(&sampler, Logits({{1, 8}})), 1);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Next(&sampler, Logits({{2, 8}})), 2);
  EXPECT_EQ(Next(&sampler, Logits({{1, 8}, {3, 5}})), 3);
}

// The penalty acts before the temperature, and the draw is that of SampleToken() at (count, 0).
TEST(TalkerSamplerTest, SamplingFollowsTheRulesInOrder) {
  GenerationSettings settings;
  settings.talker = {true, 0.8F, 6, 0.9F};
  settings.repetition_penalty = 1.3F;
  std::mt19937 random(23);
  std::normal_distribution<float> normal(0, 2);
  TalkerSampler sampler(kVocab, kEos, settings, 77);
  std::vector<int32_t> history;
  for (uint32_t frame = 0; frame < 60; ++frame) {
    std::vector<float> logits(kVocab);
    for (float& logit : logits) logit = normal(random);
    std::vector<float> expected = logits;
    for (size_t id = 0; id < expected.size(); ++id) {
      if (std::count(history.begin(), history.end(), static_cast<int32_t>(id)) > 0) {
        expected[id] = expected[id] > 0 ? expected[id] / 1.3F : expected[id] * 1.3F;
      }
      if (id >= kCodes && (id != kEos || history.size() < 2)) expected[id] = -kInf;
    }
    const int32_t want = Choose(expected, settings.talker, {77, frame, 0});
    ASSERT_EQ(Next(&sampler, logits), want) << "frame " << frame;
    history.push_back(want);
  }
}

TEST(TalkerSamplerTest, DamagedLogitsChooseNothingEvenWhereSuppressed) {
  for (const int id : {3, kVocab - 1, kEos}) {
    for (const float value : {kNaN, kInf}) {
      if (id != 3 && value == kInf) continue;  // a suppressed infinity is harmless
      TalkerSampler sampler(kVocab, kEos, GreedySettings(1.05F), 0);
      EXPECT_EQ(Next(&sampler, Logits({{id, value}})), kNoToken) << id << " " << value;
      EXPECT_EQ(sampler.count(), 0);
    }
  }
}

TEST(TalkerSamplerTest, VocabularyOfControlIdsOnlyChoosesNothing) {
  TalkerSampler sampler(1000, 10, GreedySettings(1), 0);
  EXPECT_EQ(Next(&sampler, std::vector<float>(1000, 1.0F)), kNoToken);
}

}  // namespace
}  // namespace qtts
