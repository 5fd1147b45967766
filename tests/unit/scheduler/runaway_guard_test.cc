// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/runaway_guard.h"

#include <gtest/gtest.h>

#include <vector>

namespace qtts {
namespace {

const std::vector<float> kSound(1920, 0.1F);
const std::vector<float> kSilence(1920, 0.0005F);

TEST(RunawayGuardTest, LongSilence) {
  RunawayGuard guard;
  // Repeated pauses do not count as a runaway.
  for (int round = 0; round < 3; ++round) {
    for (int i = 1; i < RunawayGuard::kSilentFrames; ++i) ASSERT_FALSE(guard.Trips(kSilence, 1000)) << i;
    ASSERT_FALSE(guard.Trips(kSound, 1000));
  }
  for (int i = 1; i < RunawayGuard::kSilentFrames; ++i) ASSERT_FALSE(guard.Trips(kSilence, 1000)) << i;
  EXPECT_TRUE(guard.Trips(kSilence, 1000));
}

TEST(RunawayGuardTest, SpeechThatItsTextCannotFill) {
  for (const size_t tokens : {size_t{0}, size_t{4}}) {
    RunawayGuard guard;
    const auto most = RunawayGuard::kFramesAtLeast + RunawayGuard::kFramesPerToken * static_cast<int64_t>(tokens);
    for (int64_t i = 0; i < most; ++i) ASSERT_FALSE(guard.Trips(kSound, tokens)) << i;
    EXPECT_TRUE(guard.Trips(kSound, tokens));
    EXPECT_FALSE(guard.Trips(kSound, tokens + 1)) << "more text has come";
  }
}

}  // namespace
}  // namespace qtts
