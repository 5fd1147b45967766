// SPDX-License-Identifier: LGPL-2.1-or-later
// Crowds of listeners that come to a cold scheduler, above a simulated card and in virtual time: the same result on
// every machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "simulated_card.h"

namespace qtts {
namespace {

class ColdStartTest : public testing::Test {
 protected:
  static constexpr int kSlots = 2048;

  static void SetUpTestSuite() {
    const auto checkpoint = Checkpoint::Open(QTTS_TEST_VOICE);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const auto tokenizer = Tokenizer::Load(QTTS_TEST_VOICE);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    tokenizer_ = *tokenizer;
    auto prompts = PromptBuilder::Create((*checkpoint)->config(), tokenizer_);
    ASSERT_TRUE(prompts.ok()) << prompts.status().message();
    prompts_ = std::make_shared<const PromptBuilder>(*std::move(prompts));
  }
  static Crowd CrowdOf(int listeners) {
    Crowd crowd;
    crowd.listeners = listeners;
    crowd.max_wait = std::chrono::seconds(2);
    return crowd;
  }
  static CrowdResult Run(const CardTimes& times, const Crowd& crowd) {
    CrowdSimulation simulation(times, kSlots, crowd, prompts_, tokenizer_);
    return simulation.Run();
  }
  static void ExpectAllServed(const CardTimes& times, const Crowd& crowd) {
    SCOPED_TRACE(times.name + ", " + std::to_string(crowd.listeners) + " listeners");
    const CrowdResult result = Run(times, crowd);
    EXPECT_EQ(result.refused, 0);
    EXPECT_EQ(result.late, 0) << "of " << result.frames;
    EXPECT_EQ(result.first_sound.size(), static_cast<size_t>(result.asked));
    EXPECT_LE(result.FirstSound(0.95), 1000);
  }

  inline static std::shared_ptr<const Tokenizer> tokenizer_;
  inline static std::shared_ptr<const PromptBuilder> prompts_;
};

TEST_F(ColdStartTest, ServesAllThatACardHolds) {
  ExpectAllServed(H100Exact17(), CrowdOf(500));
  ExpectAllServed(H100Exact17(), CrowdOf(950));
  ExpectAllServed(H100Exact06(), CrowdOf(1000));
  ExpectAllServed(H100Fast17(), CrowdOf(1150));
}

// A server speaks once before it is ready: steps of one row tell nothing about steps of many.
TEST_F(ColdStartTest, ServesAllAfterOneThatSpokeAlone) {
  Crowd crowd = CrowdOf(950);
  crowd.alone = 120;
  ExpectAllServed(H100Exact17(), crowd);
}

// A few listeners must not pay for what protects many.
TEST_F(ColdStartTest, FewHearTheFirstSoundAtOnce) {
  const CrowdResult result = Run(H100Exact17(), CrowdOf(64));
  EXPECT_EQ(result.late, 0);
  EXPECT_LE(result.FirstSound(0.95), 10);
}

// 1,040 of the 1.7B speak at once on this card with its 72 of 80 ms, and 1,110 of the 0.6B.
TEST_F(ColdStartTest, NobodyIsLateAtMoreThanACardHolds) {
  for (const CardTimes& times : {H100Exact17(), H100Exact06(), H100Fast17()}) {
    for (const double pace : {1.0, 2.0}) {
      for (const int listeners : {1150, 1700}) {
        SCOPED_TRACE(times.name + ", " + std::to_string(listeners) + " listeners, pace " + std::to_string(pace));
        Crowd crowd = CrowdOf(listeners);
        crowd.pace = pace;
        const CrowdResult result = Run(times, crowd);
        EXPECT_EQ(result.late, 0) << "of " << result.frames;
        EXPECT_GE(static_cast<int>(result.first_sound.size()), std::min(listeners, 950));
      }
    }
  }
}

// All at once, who are followed by others for a minute: the others' contexts have grown by then.
TEST_F(ColdStartTest, NobodyIsLateAmongMoreThanACardHoldsForAMinute) {
  Crowd crowd = CrowdOf(1700);
  crowd.seconds = 0.1;
  crowd.replaced = true;
  crowd.until = 60;
  crowd.max_wait = Request::kNoLimit;
  const CrowdResult result = Run(H100Fast17(), crowd);
  EXPECT_EQ(result.late, 0) << "of " << result.frames;
  EXPECT_EQ(result.refused, 0);
  EXPECT_GE(result.frames, int64_t{60} * 12 * 1300);
}

// One that is refused is told when there will be room.
TEST_F(ColdStartTest, WhoComesAgainWhenToldIsServed) {
  for (const int listeners : {1150, 1700}) {
    SCOPED_TRACE(listeners);
    Crowd crowd = CrowdOf(listeners);
    crowd.until = 60;
    crowd.retry = true;
    const CrowdResult result = Run(H100Exact17(), crowd);
    EXPECT_GT(result.refused, 50);
    EXPECT_LE(result.refused_again, result.refused / 20);
    EXPECT_EQ(result.late, 0) << "of " << result.frames;
    std::vector<double> times = result.retry_after;
    std::sort(times.begin(), times.end());
    EXPECT_GT(times.front(), 0);
    EXPECT_LE(times.back(), 30) << "all but the longest have ended by then";
  }
}

// What protects many from a crowd must not delay those that come one after the other.
TEST_F(ColdStartTest, RequestsAtAConstantRateAreHeardSoon) {
  const struct {
    CardTimes times;
    double rate;  // requests a second
    double p95;   // ms
  } cases[] = {{H100Exact17(), 20, 10}, {H100Exact17(), 100, 45}, {H100Exact06(), 20, 6}, {H100Exact06(), 100, 30}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.times.name + ", a second: " + std::to_string(c.rate));
    Crowd crowd = CrowdOf(static_cast<int>(c.rate * 20));
    crowd.seconds = 20;
    crowd.least_frames = 30;
    crowd.most_frames = 95;
    const CrowdResult result = Run(c.times, crowd);
    EXPECT_EQ(result.refused, 0);
    EXPECT_EQ(result.late, 0) << "of " << result.frames;
    EXPECT_LE(result.FirstSound(0.95), c.p95);
  }
}

TEST_F(ColdStartTest, IsTheSameEachTime) {
  const CrowdResult first = Run(H100Exact17(), CrowdOf(950));
  const CrowdResult second = Run(H100Exact17(), CrowdOf(950));
  EXPECT_EQ(first.first_sound, second.first_sound);
  EXPECT_EQ(first.frames, second.frames);
}

}  // namespace
}  // namespace qtts
