// SPDX-License-Identifier: LGPL-2.1-or-later
#include "voice/takes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "qtts/voice.h"

namespace qtts {
namespace {

ClonedVoice Take(const std::string& style, float first = 1) {
  ClonedVoice voice;
  voice.x_vector = {first, 2};
  voice.style = style;
  voice.model = "m";
  return voice;
}

ClonedVoice DesignedTake(const std::string& style) {
  ClonedVoice voice = Take(style);
  voice.x_vector.clear();
  voice.reference_codes = {1, 2};
  return voice;
}

TEST(TakesTest, StyleOfAnInstruction) {
  EXPECT_EQ(StyleOfInstruct("Calm, please."), "calm");
  EXPECT_EQ(StyleOfInstruct("  \"EXCITED\"!"), "excited");
  EXPECT_EQ(StyleOfInstruct("\u00C4rgerlich\u2026 sehr"), "\u00E4rgerlich");
  EXPECT_EQ(StyleOfInstruct("\uFF0C\u3002"), "");
  EXPECT_EQ(StyleOfInstruct(""), "");
}

// Check: 61
TEST(TakesTest, ChosenByStyleThenByInstruction) {
  const std::vector<ClonedVoice> takes = {Take("calm", 1), Take("excited", 2)};
  const auto chosen = [&](const std::string& style, const std::string& instruct) {
    const auto take = ChooseTake(takes, style, instruct, "v");
    EXPECT_TRUE(take.ok()) << take.status().message();
    return take.ok() ? *take : ClonedVoice();
  };
  EXPECT_EQ(chosen("", "").style, "calm");
  EXPECT_EQ(chosen("Excited", "").x_vector[0], 2);
  EXPECT_EQ(chosen("", "Excited and fast.").style, "excited");
  EXPECT_EQ(chosen("calm", "Excited and fast.").style, "calm");
  EXPECT_TRUE(chosen("", "Excited and fast.").warnings.empty());
  const ClonedVoice first = chosen("", "Angry!");
  EXPECT_EQ(first.style, "calm");
  ASSERT_EQ(first.warnings.size(), 1U);
  EXPECT_NE(first.warnings[0].find("no style \"angry\""), std::string::npos) << first.warnings[0];
  EXPECT_NE(first.warnings[0].find("calm, excited"), std::string::npos) << first.warnings[0];
  const auto unknown = ChooseTake(takes, "angry", "", "v");
  EXPECT_EQ(unknown.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(unknown.status().message().find("no style \"angry\"; it has: calm, excited"), std::string::npos)
      << unknown.status().message();
}

TEST(TakesTest, AVoiceWithoutStylesHasOneTake) {
  const auto take = ChooseTake({Take("")}, "", "Angry!", "v");
  ASSERT_TRUE(take.ok());
  EXPECT_TRUE(take->warnings.empty()) << "the model warns that it heeds no instruction";
  EXPECT_NE(ChooseTake({Take("")}, "calm", "", "v").status().message().find("it has: none"), std::string::npos);
}

TEST(TakesTest, AnInstructionIsForTheModelOfADesignedVoice) {
  const auto take = ChooseTake({DesignedTake("calm"), DesignedTake("excited")}, "", "Excited and fast.", "v");
  ASSERT_TRUE(take.ok());
  EXPECT_EQ(take->style, "calm");
  EXPECT_TRUE(take->warnings.empty());
}

TEST(TakesTest, OneFileHoldsTakesOfOneModelWithDifferentStyles) {
  EXPECT_TRUE(CheckTakes(std::vector{Take("")}).ok());
  EXPECT_TRUE(CheckTakes(std::vector{Take("calm"), Take("excited")}).ok());
  const auto refused = [](const std::vector<ClonedVoice>& takes) {
    const Status status = CheckTakes(takes);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_NE(refused({}).find("1 to 64"), std::string::npos);
  EXPECT_NE(refused({Take("calm"), Take("Calm")}).find("\"calm\" already"), std::string::npos);
  EXPECT_NE(refused({Take("calm"), Take("")}).find("needs a style"), std::string::npos);
  ClonedVoice other = Take("excited");
  other.model = "n";
  EXPECT_NE(refused({Take("calm"), other}).find("different models"), std::string::npos);
}

ClonedVoice VectorVoice(std::vector<float> x_vector, const std::string& model = "m") {
  ClonedVoice voice;
  voice.x_vector = std::move(x_vector);
  voice.model = model;
  return voice;
}

// Check: 62
TEST(MixTest, IsTheMeanByWeightWithTheMeanLength) {
  const std::vector<VoiceShare> shares = {{VectorVoice({3, 0}), 0.5}, {VectorVoice({0, 5}), 0.5}};
  const auto mix = MixVoices(shares);
  ASSERT_TRUE(mix.ok()) << mix.status().message();
  const double length = std::hypot(mix->x_vector[0], mix->x_vector[1]);
  EXPECT_NEAR(length, 4, 1e-5);
  EXPECT_NEAR(mix->x_vector[0] / mix->x_vector[1], 3.0 / 5.0, 1e-5);
  EXPECT_EQ(mix->model, "m");
  EXPECT_TRUE(mix->reference_codes.empty());
  // Weights count by their ratio, whatever their sum.
  for (const double scale : {1e-300, 7.0, 1e300}) {
    const std::vector<VoiceShare> scaled = {{VectorVoice({3, 0}), scale}, {VectorVoice({0, 5}), scale}};
    const auto same = MixVoices(scaled);
    ASSERT_TRUE(same.ok());
    EXPECT_EQ(same->x_vector, mix->x_vector);
  }
}

TEST(MixTest, AVoiceWithItselfIsTheVoice) {
  const ClonedVoice voice = VectorVoice({0.25F, -1, 7});
  const auto mix = MixVoices(std::vector<VoiceShare>{{voice, 0.7}, {voice, 0.3}});
  ASSERT_TRUE(mix.ok());
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(mix->x_vector[i], voice.x_vector[i], 1e-6);
}

// Check: 62
TEST(MixTest, RefusesVoicesThatDoNotFit) {
  const auto refused = [](const std::vector<VoiceShare>& shares) {
    const Status status = MixVoices(shares).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  const ClonedVoice voice = VectorVoice({1, 2});
  EXPECT_NE(refused({{voice, 1}}).find("two voices"), std::string::npos);
  for (const double weight : {0.0, -0.5, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_NE(refused({{voice, 1}, {voice, weight}}).find("voice 2 of the mix has the weight"), std::string::npos);
  }
  EXPECT_NE(refused({{voice, 1}, {VectorVoice({1, 2, 3}), 1}}).find("of 3 values"), std::string::npos);
  EXPECT_NE(refused({{voice, 1}, {VectorVoice({1, 2}, "n"), 1}}).find("different checkpoints"), std::string::npos);
  EXPECT_NE(refused({{voice, 1}, {DesignedTake(""), 1}}).find("designed voice"), std::string::npos);
  EXPECT_NE(refused({{voice, 1}, {VectorVoice({1, std::nanf("")}), 1}}).find("finite"), std::string::npos);
  EXPECT_NE(refused({{voice, 1}, {VectorVoice({-1, -2}), 1}}).find("cancel"), std::string::npos);
}

}  // namespace
}  // namespace qtts
