// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/admission.h"

#include <gtest/gtest.h>

namespace qtts {
namespace {

using std::chrono::milliseconds;

// A model of a device whose step of n rows takes 4 ms and 60 us a row, and 0.05 us a position.
StepModel LearntModel() {
  StepModel model;
  for (int i = 0; i < 600; ++i) {
    const int64_t rows = 1 + i % 500;
    const int64_t positions = rows * (40 + i * 7 % 200);
    const double prompts = i % 2 == 0 ? 0.5 : 0;
    model.Add(rows, positions, prompts,
              4e-3 + 60e-6 * static_cast<double>(rows) + 0.05e-6 * static_cast<double>(positions) + 8e-3 * prompts);
  }
  return model;
}

LoadForecast::Loads LoadsOf(int streams, int64_t positions, int64_t last) {
  LoadForecast forecast;
  for (int i = 1; i < streams; ++i) forecast.Add(positions, last);
  return forecast.With(positions, last);
}

TEST(LoadForecastTest, StreamsGrowAndEnd) {
  LoadForecast forecast;
  forecast.Add(100, 100 + LoadForecast::kFrames);
  const LoadForecast::Loads loads = forecast.With(30, 30 + 3 * LoadForecast::kFrames);
  EXPECT_EQ(loads[0], (LoadForecast::Load{2, 130}));
  EXPECT_EQ(loads[1], (LoadForecast::Load{1, 30 + LoadForecast::kFrames}));
  EXPECT_EQ(loads[2], (LoadForecast::Load{1, 30 + 2 * LoadForecast::kFrames}));
  EXPECT_EQ(loads[3], (LoadForecast::Load{0, 0}));
  forecast.Clear();
  EXPECT_EQ(forecast.loads()[0], LoadForecast::Load{});
}

TEST(AdmissionTest, HasTimeByRowsContextsAndSlowness) {
  StepModel model = LearntModel();
  const struct {
    const char* what;
    int streams;
    int64_t positions, last;
    double slowness;
    bool has_time;
  } cases[] = {
      {"a few", 10, 40, 200, 1, true},
      {"as many as fit now", 1000, 40, 60, 1, true},
      {"too many", 1200, 40, 60, 1, false},
      {"as many, and their contexts will be too long", 1000, 40, 500, 1, false},
      {"as many on a device that has become slower", 1000, 40, 60, 1.2, false},
      {"fewer on a device that has become slower", 700, 40, 60, 1.2, true},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(HasTime(LoadsOf(c.streams, c.positions, c.last), c.slowness, &model), c.has_time) << c.what;
  }
}

TEST(AdmissionTest, BeforeAnyStepAFewBegin) {
  StepModel model;
  const AdmissionRules rules;
  EXPECT_TRUE(HasTime(LoadsOf(static_cast<int>(rules.unmeasured_rows), 40, 400), 1, &model));
  EXPECT_FALSE(HasTime(LoadsOf(static_cast<int>(rules.unmeasured_rows) + 1, 40, 400), 1, &model));
}

// From the first steps on as many begin as are safe: a step of n times as many rows takes n times as long at most.
TEST(AdmissionTest, GrowsWithTheStepsThatWereMeasured) {
  StepModel model;
  model.Add(8, 320, 0, 3.6e-3);
  EXPECT_TRUE(HasTime(LoadsOf(150, 40, 56), 1, &model));
  EXPECT_FALSE(HasTime(LoadsOf(170, 40, 56), 1, &model));
  model.Add(64, 2560, 0, 8.6e-3);
  EXPECT_TRUE(HasTime(LoadsOf(500, 40, 56), 1, &model));
  EXPECT_FALSE(HasTime(LoadsOf(560, 40, 56), 1, &model));
}

TEST(AdmissionTest, TellsWhenThereIsRoom) {
  StepModel model = LearntModel();
  LoadForecast forecast;
  const auto frames = [](int64_t times) { return 40 + times * LoadForecast::kFrames; };
  for (int i = 0; i < 900; ++i) forecast.Add(40, frames(8));
  for (int i = 0; i < 300; ++i) forecast.Add(40, frames(3));
  const LoadForecast::Loads loads = forecast.With(40, frames(4));
  const milliseconds step = LoadForecast::kFrames * milliseconds(80);
  EXPECT_EQ(TimeUntilRoom(loads, 0, &model), 3 * step);
  EXPECT_EQ(TimeUntilRoom(loads, 300, &model), 8 * step) << "others take the room of those that end first";
  EXPECT_EQ(TimeUntilRoom(LoadsOf(10, 40, 400), 0, &model), milliseconds(0));
  EXPECT_EQ(TimeUntilRoom(LoadsOf(1500, 40, 100000), 0, &model), kFarthestRoom);
}

TEST(AdmissionTest, TellsWhenStreamsEnd) {
  EXPECT_EQ(TimeUntilEnds({300, 100, 200}, 0), milliseconds(8000));
  EXPECT_EQ(TimeUntilEnds({300, 100, 200}, 1), milliseconds(16000));
  EXPECT_EQ(TimeUntilEnds({300, 100, 200}, 3), kFarthestRoom);
  EXPECT_EQ(TimeUntilEnds({-5}, 0), milliseconds(0));
  EXPECT_EQ(TimeUntilEnds({1000000}, 0), kFarthestRoom);
  EXPECT_EQ(TimeUntilEnds({}, 0), kFarthestRoom);
}

class OpeningBudgetTest : public testing::Test {
 protected:
  // Lets `ms` pass beside steps of all that take `step_ms`.
  void Pass(double ms, double step_ms) {
    now_ +=
        std::chrono::duration_cast<OpeningBudget::TimePoint::duration>(std::chrono::duration<double, std::milli>(ms));
    budget_.Advance(now_, step_ms * 1e-3);
  }

  const AdmissionRules rules_;
  OpeningBudget budget_;
  OpeningBudget::TimePoint now_{std::chrono::hours(1)};
};

TEST_F(OpeningBudgetTest, IsWhatStepsLeave) {
  Pass(0, 36);
  budget_.Spend(rules_.max_budget);
  EXPECT_FALSE(budget_.Allows(0.010));
  EXPECT_EQ(std::chrono::round<milliseconds>(budget_.When(0.010) - now_), milliseconds(20)) << "40 of 80 ms are left";
  Pass(19.9, 36);
  EXPECT_FALSE(budget_.Allows(0.010));
  Pass(0.2, 36);
  EXPECT_TRUE(budget_.Allows(0.010));
}

TEST_F(OpeningBudgetTest, SavesUpNoMoreThanOthersCanWait) {
  Pass(10000, 4);
  EXPECT_TRUE(budget_.Allows(1)) << "what takes longer than that begins in parts";
  budget_.Spend(rules_.max_budget);
  EXPECT_FALSE(budget_.Allows(0.001));
}

TEST_F(OpeningBudgetTest, NobodyWaitsForEver) {
  Pass(0, 90);
  budget_.Spend(rules_.max_budget);
  Pass(1000, 90);
  EXPECT_TRUE(budget_.Allows(rules_.min_share * 0.999));
}

}  // namespace
}  // namespace qtts
