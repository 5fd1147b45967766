// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/page_forecast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace qtts {
namespace {

constexpr int64_t kPage = 128;

TEST(PageForecastTest, AContextTakesMostJustBeforeItsEnd) {
  const PageForecast forecast(kPage);
  EXPECT_EQ(forecast.MostWith({1, 1}), 1);
  EXPECT_EQ(forecast.MostWith({10, 100}), 1);
  EXPECT_EQ(forecast.MostWith({100, 1000}), 8);
  EXPECT_EQ(forecast.MostWith({1000, 20}), 8) << "past its expected end it takes what it has";
}

TEST(PageForecastTest, ContextsThatEndBeforeOthersAreLongLeaveTheirPages) {
  PageForecast forecast(kPage);
  forecast.Add({900, 1000});  // 8 pages, soon none
  EXPECT_EQ(forecast.MostWith({20, 800}), 9) << "now 8 and 1, at the end 0 and 7";
  forecast.Add({20, 1024});
  EXPECT_EQ(forecast.MostWith({20, 1024}), 16) << "both at their ends";
  forecast.Clear();
  EXPECT_EQ(forecast.MostWith({20, 100}), 1);
}

// The reference: position by position.
int64_t MostByPositions(const std::vector<PageForecast::Context>& contexts) {
  int64_t most = 0;
  for (int64_t ahead = 0; ahead < 4000; ++ahead) {
    int64_t pages = 0;
    for (const auto& [positions, last] : contexts) {
      if (ahead == 0 || positions + ahead < last) pages += (positions + ahead + kPage - 1) / kPage;
    }
    most = std::max(most, pages);
  }
  return most;
}

TEST(PageForecastTest, ComesCloseToTheMostOfManyContexts) {
  std::mt19937 random(1);  // NOLINT(cert-msc51-cpp): the bounds are of these contexts
  for (int round = 0; round < 20; ++round) {
    std::vector<PageForecast::Context> contexts;
    PageForecast forecast(kPage);
    const auto within = [&](int64_t least, int64_t most) {
      return std::uniform_int_distribution<int64_t>(least, most)(random);
    };
    const int64_t oldest = within(0, 1000);
    for (int i = 0; i < 500; ++i) {
      const int64_t positions = within(20, 100) + within(0, oldest);
      contexts.push_back({positions, positions + within(1, 1500)});
      if (i > 0) forecast.Add(contexts.back());
    }
    const auto exact = static_cast<double>(MostByPositions(contexts));
    const double close = static_cast<double>(forecast.MostWith(contexts.front())) / exact;
    EXPECT_LE(close, 1) << "it looks at some of the positions";
    EXPECT_GE(close, 0.93);
  }
}

}  // namespace
}  // namespace qtts
