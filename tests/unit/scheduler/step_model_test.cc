// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/step_model.h"

#include <gtest/gtest.h>

#include <random>

namespace qtts {
namespace {

// Time of a step with the batched path as measured on an H200, in seconds.
double StepTime(int64_t rows, int64_t positions) {
  return 3.4e-3 + 32e-6 * static_cast<double>(rows) + 0.024e-6 * static_cast<double>(positions);
}

constexpr double kPromptTime = 8e-3;  // of a frame's work

TEST(StepModelTest, FindsTheLineThatStepsLieOn) {
  StepModel model;
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(model.fitted(), i >= 32) << i;
    const auto rows = static_cast<int64_t>(1 + random() % 1024);
    const int64_t positions = rows * static_cast<int64_t>(30 + random() % 500);
    const double noise = 0.97 + 0.06 * static_cast<double>(random() % 1000) / 1000;
    const double prompts = i % 3 == 0 ? 0.2 * static_cast<double>(random() % 6) : 0;
    model.Add(rows, positions, prompts, (StepTime(rows, positions) + kPromptTime * prompts) * noise);
  }
  for (const int64_t rows : {1, 64, 256, 1024}) {
    for (const int64_t context : {30, 128, 512}) {
      const double expected = StepTime(rows, rows * context);
      EXPECT_NEAR(model.Cost().Seconds(rows, rows * context), expected, 0.1 * expected + 2e-4)
          << rows << " of " << context;
      EXPECT_NEAR(model.Cost().Seconds(rows, rows * context, 1), expected + kPromptTime, 0.1 * expected + 1e-3)
          << rows << " of " << context << ", behind prompts";
    }
  }
}

TEST(StepModelTest, FollowsADeviceThatBecomesSlower) {
  StepModel model;
  for (const double slower : {1.0, 2.0}) {
    for (int i = 0; i < 2000; ++i) {
      const int64_t rows = 1 + i % 256;
      model.Add(rows, rows * (100 + i % 7), 0, slower * StepTime(rows, rows * 100));
    }
    EXPECT_NEAR(model.Cost().Seconds(256, 25600), slower * StepTime(256, 25600), 0.05 * slower * StepTime(256, 25600));
  }
}

// A busy device makes small steps while it becomes busy, and then large ones behind prompts only.
TEST(StepModelTest, LearnsFromStepsBehindPrompts) {
  const auto slow_small_steps = [](int64_t rows) { return StepTime(rows, rows * 100) * (rows < 300 ? 1.25 : 1); };
  StepModel model;
  for (int i = 0; i < 500; ++i) {
    const int64_t rows = 40 + i % 200;
    model.Add(rows, rows * 100, 0, slow_small_steps(rows));
  }
  for (int i = 0; i < 500; ++i) {
    const int64_t rows = 1400 + i % 100;
    const double prompts = 0.1 + 0.1 * (i % 5);
    model.Add(rows, rows * 100, prompts, slow_small_steps(rows) + kPromptTime * prompts);
  }
  EXPECT_NEAR(model.Cost().Seconds(1500, 150000), StepTime(1500, 150000), 0.02 * StepTime(1500, 150000));
}

// Steps of one size do not determine the model: no prediction is negative or decreases with the rows.
TEST(StepModelTest, NeverSaysThatMoreTakesLess) {
  std::mt19937 random(2);
  for (int round = 0; round < 50; ++round) {
    StepModel model;
    const auto rows = static_cast<int64_t>(1 + random() % 1000);
    for (int i = 0; i < 100; ++i) {
      model.Add(rows, rows * (100 + i), 0,
                0.02 * (1 - 0.004 * i) * (0.8 + 0.4 * static_cast<double>(random() % 100) / 100));
    }
    double last = 0;
    for (int64_t more = 1; more <= 4096; more *= 2) {
      const double time = model.Cost().Seconds(more, more * 100);
      EXPECT_GE(time, last);
      last = time;
    }
    EXPECT_NEAR(model.Cost().Seconds(rows, rows * 150), 0.016, 0.008);
  }
}

}  // namespace
}  // namespace qtts
