// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/length_estimate.h"

#include <gtest/gtest.h>

namespace qtts {
namespace {

constexpr size_t kTokens = 20;  // of each utterance

TEST(LengthEstimateTest, LearnsHowFastUtterancesSpeak) {
  LengthEstimate estimate;
  EXPECT_EQ(estimate.FramesOf(kTokens), 160) << "twice as long as most speak, until it is known";
  for (const int64_t frames_of_each : {80, 240}) {
    for (int i = 0; i < 10000; ++i) {
      estimate.AddFrames(frames_of_each);
      estimate.AddEnd(kTokens);
    }
    EXPECT_NEAR(static_cast<double>(estimate.FramesOf(kTokens)), static_cast<double>(frames_of_each), 5);
  }
}

TEST(LengthEstimateTest, ThoseThatStillSpeakCount) {
  LengthEstimate estimate;
  constexpr int kTogether = 1000;
  for (int frame = 0; frame < 100; ++frame) estimate.AddFrames(kTogether);
  for (int i = 0; i < 10; ++i) estimate.AddEnd(kTokens);
  EXPECT_GT(estimate.FramesOf(kTokens), 300) << "990 of 1,000 utterances have outlived 100 frames";
}

TEST(LengthEstimateTest, IsNeverMoreThanTheRunawayGuardAllows) {
  LengthEstimate estimate;
  estimate.AddFrames(1000000000);
  EXPECT_EQ(estimate.FramesOf(kTokens), 125 + 12 * 20);
  EXPECT_EQ(estimate.FramesOf(0), 0);
  estimate.AddEnd(0);
}

}  // namespace
}  // namespace qtts
