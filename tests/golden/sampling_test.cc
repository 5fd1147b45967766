// SPDX-License-Identifier: LGPL-2.1-or-later
// The sampling rules against the scores that the official package drew from. Its random numbers are not recorded, so
// the distributions are compared: the possible ids and their frequencies.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "golden/golden_case.h"
#include "sampling/sampler.h"

namespace qtts::golden {
namespace {

constexpr int kDraws = 1500;
constexpr float kNever = -std::numeric_limits<float>::infinity();

class GoldenScores : public ::testing::TestWithParam<std::string> {};
class GoldenGreedyScores : public ::testing::TestWithParam<std::string> {};

// Expects `counts` of ids to be draws from softmax(scores): 0 if the probability is 0, and a chi-squared statistic
// within six standard deviations of its mean.
void ExpectDrawnFrom(std::span<const float> scores, const std::vector<int>& counts) {
  double total = 0;
  for (const float score : scores) total += std::exp(static_cast<double>(score));
  double statistic = 0;
  double rare = 0, rare_count = 0;  // sums over ids that are too rare for the statistic
  int cells = 0;
  for (size_t id = 0; id < scores.size(); ++id) {
    const double expected = kDraws * std::exp(static_cast<double>(scores[id])) / total;
    if (scores[id] == kNever) {
      EXPECT_EQ(counts[id], 0) << "id " << id << " cannot come";
    } else if (expected < 10) {
      rare += expected;
      rare_count += counts[id];
    } else {
      statistic += (counts[id] - expected) * (counts[id] - expected) / expected;
      ++cells;
    }
  }
  if (rare >= 10) {
    statistic += (rare_count - rare) * (rare_count - rare) / rare;
    ++cells;
  }
  ASSERT_GT(cells, 0);
  EXPECT_LT(statistic, cells + 6 * std::sqrt(2.0 * cells));
}

// A sampler with the past choices `history`.
TalkerSampler SamplerAfter(const Fixture& fixture, std::span<const int32_t> history, uint64_t seed) {
  const TalkerConfig& config = fixture.checkpoint->config().talker;
  TalkerSampler sampler(config.vocab_size, config.codec_eos_id, fixture.request.settings, seed);
  for (const int32_t id : history) {
    std::vector<float> only(static_cast<size_t>(config.vocab_size), kNever);
    only[static_cast<size_t>(id)] = 0;
    EXPECT_EQ(sampler.Sample(only), id);
  }
  return sampler;
}

TEST_P(GoldenScores, TalkerDrawsFromThem) {
  const auto fixture = MakeFixture(GetParam());
  ASSERT_TRUE(fixture.ok()) << fixture.status().message();
  const GoldenTensor& logits = fixture->golden->tensors.at("logits");
  const GoldenTensor& scores = fixture->golden->tensors.at("scores");
  const std::vector<int32_t> ids = fixture->golden->ids();
  for (int64_t step = 0; step < logits.shape[0]; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    std::vector<int> counts(static_cast<size_t>(logits.shape[1]));
    for (int draw = 0; draw < kDraws; ++draw) {
      TalkerSampler sampler =
          SamplerAfter(*fixture, std::span(ids).first(static_cast<size_t>(step)), static_cast<uint64_t>(draw));
      std::vector<float> row(logits.Row(step).begin(), logits.Row(step).end());
      const int32_t id = sampler.Sample(row);
      ASSERT_GE(id, 0);
      ++counts[static_cast<size_t>(id)];
    }
    ExpectDrawnFrom(scores.Row(step), counts);
  }
}

TEST_P(GoldenScores, PredictorDrawsFromThem) {
  const auto fixture = MakeFixture(GetParam());
  ASSERT_TRUE(fixture.ok()) << fixture.status().message();
  const GoldenTensor& logits = fixture->golden->tensors.at("predictor_logits");
  const GoldenTensor& scores = fixture->golden->tensors.at("predictor_scores");
  for (int64_t group = 1; group <= logits.shape[0]; ++group) {
    SCOPED_TRACE("group " + std::to_string(group));
    std::vector<int> counts(static_cast<size_t>(logits.shape[1]));
    for (int draw = 0; draw < kDraws; ++draw) {
      std::vector<float> row(logits.Row(group - 1).begin(), logits.Row(group - 1).end());
      const int32_t id =
          SampleToken(row, fixture->request.settings.predictor,
                      {.seed = static_cast<uint64_t>(draw), .frame = 0, .codebook = static_cast<uint32_t>(group)});
      ASSERT_GE(id, 0);
      ++counts[static_cast<size_t>(id)];
    }
    ExpectDrawnFrom(scores.Row(group - 1), counts);
  }
}

// Greedy: the recorded logits of the first steps, in turn, give the recorded ids.
TEST_P(GoldenGreedyScores, GiveTheRecordedIds) {
  const auto fixture = MakeFixture(GetParam());
  ASSERT_TRUE(fixture.ok()) << fixture.status().message();
  const GoldenTensor& logits = fixture->golden->tensors.at("logits");
  const std::vector<int32_t> ids = fixture->golden->ids();
  TalkerSampler sampler = SamplerAfter(*fixture, {}, 0);
  for (int64_t step = 0; step < logits.shape[0]; ++step) {
    std::vector<float> row(logits.Row(step).begin(), logits.Row(step).end());
    EXPECT_EQ(sampler.Sample(row), ids[static_cast<size_t>(step)]) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, GoldenScores, ::testing::ValuesIn(Cases({CaseKind::kSampled})), CaseTestName);
INSTANTIATE_TEST_SUITE_P(Golden, GoldenGreedyScores, ::testing::ValuesIn(Cases({CaseKind::kGreedy})), CaseTestName);

}  // namespace
}  // namespace qtts::golden
