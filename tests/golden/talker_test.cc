// SPDX-License-Identifier: LGPL-2.1-or-later
// The CPU backend's talker and code predictor, stage by stage, against the official package. Each stage gets recorded
// inputs or codes, so an error shows in the stage that causes it.
#include "cpu/talker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/checks.h"
#include "cpu/embedder.h"
#include "cpu/predictor.h"
#include "cpu/thread_pool.h"
#include "golden/golden_case.h"

namespace qtts::golden {
namespace {

constexpr double kEmbeddingTolerance = 1e-5;
constexpr double kLogitTolerance = 1e-4;

class GoldenTalker : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto fixture = MakeFixture(GetParam());
    ASSERT_TRUE(fixture.ok()) << fixture.status().message();
    fixture_ = *std::move(fixture);
    const Checkpoint& checkpoint = *fixture_.checkpoint;
    embedder_ = std::make_unique<cpu::Embedder>(checkpoint.talker(), checkpoint.predictor(), pool_);
    talker_ = std::make_unique<cpu::Talker>(checkpoint.config().talker, checkpoint.talker(), pool_);
    cache_ = std::make_unique<cpu::KvCache>(talker_->NewCache());
    hidden_.resize(static_cast<size_t>(talker_->hidden_size()));
    logits_.resize(static_cast<size_t>(talker_->vocab_size()));
  }

  const GoldenTensor& Recorded(const std::string& name) const { return fixture_.golden->tensors.at(name); }

  std::vector<float> Embed(std::span<const PromptRow> rows) {
    std::vector<float> inputs(rows.size() * hidden_.size());
    const PromptLimits limits = PromptLimitsOf(fixture_.checkpoint->config(), 0, 0);
    for (const PromptRow& row : rows) {
      const Status status = CheckRow(row, fixture_.prompt.x_vector, limits);
      EXPECT_TRUE(status.ok()) << status.message();
    }
    embedder_->Embed(rows, fixture_.prompt.x_vector, inputs.data());
    return inputs;
  }

  void Prefill() { talker_->Prefill(cache_.get(), Embed(fixture_.prompt.rows), hidden_.data(), logits_.data()); }

  // The talker's input after frame `frame`, whose codes are the recorded ones.
  PromptRow RowAfter(int64_t frame) const {
    return {.text_id = fixture_.TextAfter(frame),
            .codes = fixture_.golden->document["codes"][static_cast<size_t>(frame)].get<std::vector<int32_t>>()};
  }

  void ExpectLogits(int64_t step) {
    const double error = RelativeError(logits_, Recorded("logits").Row(step));
    EXPECT_LE(error, kLogitTolerance) << "step " << step;
    largest_error_ = std::max(largest_error_, error);
  }

  Fixture fixture_;
  cpu::ThreadPool pool_{2};
  std::unique_ptr<cpu::Embedder> embedder_;
  std::unique_ptr<cpu::Talker> talker_;
  std::unique_ptr<cpu::KvCache> cache_;
  std::vector<float> hidden_, logits_;
  double largest_error_ = 0;
};

TEST_P(GoldenTalker, PromptEmbeddings) {
  ExpectError(RelativeError(Embed(fixture_.prompt.rows), Recorded("prompt").values), kEmbeddingTolerance);
}

TEST_P(GoldenTalker, TrailingTextEmbeddings) {
  const GoldenTensor& recorded = Recorded("trailing");
  std::vector<PromptRow> rows;
  for (int64_t i = 0; i < recorded.shape[0]; ++i) rows.push_back({.text_id = fixture_.TextAfter(i)});
  EXPECT_LE(RelativeError(Embed(rows), recorded.values), kEmbeddingTolerance);
  EXPECT_LE(static_cast<int64_t>(fixture_.prompt.trailing_text.size()), recorded.shape[0]);
  const PromptRow pad = {.text_id = fixture_.prompt.pad_text_id};
  EXPECT_LE(RelativeError(Embed({&pad, 1}), Recorded("pad").values), kEmbeddingTolerance);
}

TEST_P(GoldenTalker, LogitsOfTheFirstSteps) {
  Prefill();
  ExpectLogits(0);
  for (int64_t step = 1; step < Recorded("logits").shape[0]; ++step) {
    const PromptRow row = RowAfter(step - 1);
    std::vector<float> input = Embed({&row, 1});
    cpu::KvCache* const caches[] = {cache_.get()};
    talker_->Step(caches, input.data(), logits_.data());
    ExpectLogits(step);
  }
  ExpectError(largest_error_, kLogitTolerance);
}

TEST_P(GoldenTalker, PredictorLogitsOfTheFirstFrame) {
  Prefill();
  const Checkpoint& checkpoint = *fixture_.checkpoint;
  cpu::Predictor predictor(checkpoint.config().predictor, checkpoint.predictor(), *embedder_, pool_);
  const GoldenTensor& recorded = Recorded("predictor_logits");
  const auto expected = fixture_.golden->document["codes"][0].get<std::vector<int32_t>>();
  ASSERT_EQ(predictor.code_groups(), static_cast<int64_t>(expected.size()));
  std::vector<int32_t> codes(expected.size());
  codes[0] = expected[0];
  const auto choose = [&](size_t, int64_t group, std::span<float> logits) {
    const double error = RelativeError(logits, recorded.Row(group - 1));
    EXPECT_LE(error, kLogitTolerance) << "group " << group;
    largest_error_ = std::max(largest_error_, error);
    return expected[static_cast<size_t>(group)];
  };
  predictor.Predict(hidden_, choose, codes);
  EXPECT_EQ(codes, expected);
  ExpectError(largest_error_, kLogitTolerance);
}

INSTANTIATE_TEST_SUITE_P(Golden, GoldenTalker, ::testing::ValuesIn(Cases({CaseKind::kGreedy, CaseKind::kSampled})),
                         CaseTestName);

}  // namespace
}  // namespace qtts::golden
