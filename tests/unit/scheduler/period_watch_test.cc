// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/period_watch.h"

#include <gtest/gtest.h>

namespace qtts {
namespace {

using std::chrono::milliseconds;

// A step every 40 ms, each with half of the streams.
class PeriodWatchTest : public testing::Test {
 protected:
  static constexpr double kHalf = 0.020;
  static constexpr double kAll = 0.040;

  void Steps(int count, double slower) {
    for (int i = 0; i < count; ++i) {
      now_ += milliseconds(40);
      watch_.Add(now_, kHalf * slower, kHalf, kAll);
    }
  }
  double slowness() const { return watch_.slowness(now_); }

  PeriodWatch watch_;
  PeriodWatch::TimePoint now_{std::chrono::hours(1)};
};

TEST_F(PeriodWatchTest, AsFastAsPredicted) {
  Steps(100, 1.0);
  EXPECT_EQ(slowness(), 1);
  Steps(100, 1.8);
  EXPECT_EQ(slowness(), 1) << "72 ms of 80";
}

TEST_F(PeriodWatchTest, ThreeSlowPeriodsLastForAWhile) {
  Steps(1, 1.0);
  Steps(4, 2.5);
  EXPECT_EQ(slowness(), 1);
  Steps(2, 2.0);
  EXPECT_EQ(slowness(), 2) << "the least of the three";
  EXPECT_EQ(watch_.until(), now_ + std::chrono::seconds(2));
  Steps(49, 1.0);
  EXPECT_EQ(slowness(), 2);
  Steps(1, 1.0);
  EXPECT_EQ(slowness(), 1);
}

TEST_F(PeriodWatchTest, WhatStaysSlowIsFoundAgain) {
  Steps(1, 1.0);
  Steps(6, 2.0);
  Steps(6, 2.5);
  EXPECT_EQ(slowness(), 2.5);
  EXPECT_EQ(watch_.until(), now_ + std::chrono::seconds(2));
}

TEST_F(PeriodWatchTest, SlowPeriodsCountInARow) {
  Steps(1, 1.0);
  for (int i = 0; i < 10; ++i) {
    Steps(4, 2.0);
    Steps(2, 1.0);
  }
  EXPECT_EQ(slowness(), 1);
}

}  // namespace
}  // namespace qtts
