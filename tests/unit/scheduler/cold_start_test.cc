// SPDX-License-Identifier: LGPL-2.1-or-later
// Admission above a simulated card, in virtual time: exact, and the same on every machine.
#include <gtest/gtest.h>

#include <cstdio>

#include "checkpoint/checkpoint.h"
#include "simulated_card.h"

namespace qtts {
namespace {

class ColdStartTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto checkpoint = Checkpoint::Open(QTTS_TEST_VOICE);
    ASSERT_TRUE(checkpoint.ok());
    const auto tokenizer = Tokenizer::Load(QTTS_TEST_VOICE);
    ASSERT_TRUE(tokenizer.ok());
    tokenizer_ = *tokenizer;
    auto prompts = PromptBuilder::Create((*checkpoint)->config(), tokenizer_);
    ASSERT_TRUE(prompts.ok());
    prompts_ = std::make_shared<const PromptBuilder>(*std::move(prompts));
  }
  static CrowdResult Run(const CardTimes& times, const Crowd& crowd, int slots) {
    CrowdSimulation simulation(times, slots, crowd, prompts_, tokenizer_);
    CrowdResult result = simulation.Run();
    std::printf("%-11s %5d in %g s: refused %4d, first sound p50 %6.1f p95 %7.1f max %7.1f ms, late %5lld of %lld, %d at once\n",
                times.name.c_str(), crowd.listeners, crowd.seconds, result.refused, result.FirstSound(0.5), result.FirstSound(0.95),
                result.FirstSound(1), static_cast<long long>(result.late), static_cast<long long>(result.frames),
                result.most_at_once);
    if (result.late > 0) {
      for (size_t i = 0; i < result.late_at.size(); ++i) {
        if (result.late_at[i] > 0) std::printf(" %zu: %lld", i, static_cast<long long>(result.late_at[i]));
      }
      std::printf("\n");
    }
    return result;
  }

  inline static std::shared_ptr<const Tokenizer> tokenizer_;
  inline static std::shared_ptr<const PromptBuilder> prompts_;
};

TEST_F(ColdStartTest, Try) {
  for (const auto& times : {H100Exact17(), H100Exact06(), H100Fast17()}) {
    for (const int listeners : {64, 500, 950, 1000, 1150, 1700, 1900}) {
      for (const int alone : {0}) for (int pace : {1, 2}) {
      Crowd crowd;
      crowd.pace = pace;
      crowd.alone = alone;
      crowd.listeners = listeners;
      crowd.max_wait = std::chrono::seconds(2);
      Run(times, crowd, 2048);
      }
    }
  }
}

}  // namespace
}  // namespace qtts
