// SPDX-License-Identifier: LGPL-2.1-or-later
#include "alignment/pauses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "constant_levels.h"

namespace qtts {
namespace {

using testing::kRate;
using testing::Sound;

TEST(PausesTest, SilencesOfSpeech) {
  Pauses pauses(kRate);
  pauses.Add(Sound({{20, -90}, {50, -20}, {15, -60}, {30, -22}, {16, -60}, {10, -20}, {40, -50}}));
  EXPECT_DOUBLE_EQ(*pauses.FirstSound(0), 0.2);
  const auto first = pauses.Next(0);
  ASSERT_TRUE(first);
  EXPECT_DOUBLE_EQ(first->begin, 0);
  EXPECT_DOUBLE_EQ(*first->end, 0.2);
  const auto second = pauses.Next(0.2);
  ASSERT_TRUE(second) << "15 hops are no silence, 16 are";
  EXPECT_DOUBLE_EQ(second->begin, 1.15);
  EXPECT_DOUBLE_EQ(*second->end, 1.31);
  const auto last = pauses.Next(1.31);
  ASSERT_TRUE(last);
  EXPECT_DOUBLE_EQ(last->begin, 1.41);
  EXPECT_FALSE(last->end) << "no sound has followed";
  EXPECT_DOUBLE_EQ(pauses.known(), 1.81);
}

TEST(PausesTest, ARunAtTheEndMayBecomeASilence) {
  Pauses pauses(kRate);
  pauses.Add(Sound({{10, -20}, {15, -80}}));
  EXPECT_FALSE(pauses.Next(0));
  EXPECT_DOUBLE_EQ(pauses.decided(), 0.10);
  pauses.Add(Sound({{1, -80}}));
  EXPECT_TRUE(pauses.Next(0));
  EXPECT_DOUBLE_EQ(pauses.decided(), 0.26);
}

TEST(PausesTest, TheLoudestSoundCountsLessWithTime) {
  Pauses pauses(kRate);
  // -50 dB is silent after -20 dB, but not five seconds later.
  pauses.Add(Sound({{10, -20}, {500, -50}}));
  const auto silence = pauses.Next(0);
  ASSERT_TRUE(silence);
  ASSERT_TRUE(silence->end);
  EXPECT_NEAR(*silence->end, 0.10 + 5.0 / 3, 0.03);
}

TEST(PausesTest, DoesNotDependOnTheCuts) {
  const std::vector<float> pcm = Sound({{7, -80}, {33, -20}, {21, -70}, {12, -25}, {40, -66}, {3, -18}});
  Pauses whole(kRate);
  whole.Add(pcm);
  for (const size_t step : {size_t{1}, size_t{7}, size_t{239}, size_t{1920}}) {
    Pauses cut(kRate);
    for (size_t at = 0; at < pcm.size(); at += step)
      cut.Add(std::span(pcm).subspan(at, std::min(step, pcm.size() - at)));
    for (double time = 0; time < 1.2; time += 0.01) {
      const auto a = whole.Next(time);
      const auto b = cut.Next(time);
      ASSERT_EQ(a.has_value(), b.has_value());
      if (!a) continue;
      EXPECT_EQ(a->begin, b->begin);
      EXPECT_EQ(a->end, b->end);
    }
  }
}

}  // namespace
}  // namespace qtts
