// SPDX-License-Identifier: LGPL-2.1-or-later
// The gain of a voice and its limiter.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gstqttsloudness.h"
#include "gstqttssettings.h"
#include "support.h"

namespace qtts::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kLimiterRate = 24000;
constexpr float kCeiling = gstqtts::Limiter::kCeiling;

std::vector<float> Noise(size_t count, float amplitude, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> value(-amplitude, amplitude);
  std::vector<float> noise(count);
  for (float& sample : noise) sample = value(random);
  return noise;
}

std::vector<float> Limited(double gain, std::vector<float> pcm) {
  gstqtts::Limiter limiter(kLimiterRate);
  limiter.Apply(gain, &pcm);
  return pcm;
}

TEST(LimiterTest, ItsCeilingIsMinusOneDecibel) { EXPECT_NEAR(20 * std::log10(kCeiling), -1, 1e-6); }

// Check: 63
TEST(LimiterTest, NoSampleIsAboveTheCeiling) {
  for (const double gain : {0.1, 1.0, 3.0, 100.0}) {
    for (const float sample : Limited(gain, Noise(48000, 1.5F, 1))) ASSERT_LE(std::fabs(sample), kCeiling);
  }
  for (const float sample : Limited(1000, {1, -1, 1e30F, -1e30F, 0.001F})) EXPECT_LE(std::fabs(sample), kCeiling);
}

// The definition, in double: the share that is taken away is what the sample needs, or what is left of that before.
// Check: 63
TEST(LimiterTest, IsItsDefinition) {
  const std::vector<float> pcm = Noise(24000, 1, 2);
  constexpr double kGain = 1.3;
  const std::vector<float> limited = Limited(kGain, pcm);
  double taken = 0;
  for (size_t i = 0; i < pcm.size(); ++i) {
    const double amplified = kGain * static_cast<double>(pcm[i]);
    const double needed = std::max(0.0, 1 - static_cast<double>(kCeiling) / std::fabs(amplified));
    taken = std::max(needed, taken * std::exp(-1 / (0.05 * kLimiterRate)));
    ASSERT_NEAR(limited[i], amplified * (1 - taken), 1e-5) << i;
  }
}

TEST(LimiterTest, SoundBelowTheCeilingIsOnlyMultiplied) {
  const std::vector<float> pcm = Noise(4800, 0.4F, 3);
  const std::vector<float> amplified = Limited(2, pcm);
  for (size_t i = 0; i < pcm.size(); ++i) ASSERT_EQ(amplified[i], pcm[i] * 2);
}

// Check: 63
TEST(LimiterTest, CutsIntoBuffersDoNotMatter) {
  const std::vector<float> pcm = Noise(9600, 1, 4);
  const std::vector<float> whole = Limited(2.5, pcm);
  gstqtts::Limiter limiter(kLimiterRate);
  std::vector<float> joined;
  std::mt19937 random(5);
  while (joined.size() < pcm.size()) {
    const size_t count =
        std::min<size_t>(std::uniform_int_distribution<size_t>(1, 1920)(random), pcm.size() - joined.size());
    const auto begin = pcm.begin() + static_cast<std::ptrdiff_t>(joined.size());
    std::vector<float> piece(begin, begin + static_cast<std::ptrdiff_t>(count));
    limiter.Apply(2.5, &piece);
    joined.insert(joined.end(), piece.begin(), piece.end());
  }
  EXPECT_EQ(joined, whole);
}

TEST(LimiterTest, ThePeakIsForgottenInTimeAndByARestart) {
  std::vector<float> pcm(kLimiterRate, 0.5F);
  pcm[0] = 4 * kCeiling;  // three quarters are taken away
  const std::vector<float> limited = Limited(1, pcm);
  EXPECT_FLOAT_EQ(limited[0], kCeiling);
  EXPECT_NEAR(limited[kLimiterRate / 20], 0.5 * (1 - 0.75 * std::exp(-1)), 1e-3) << "50 ms later";
  EXPECT_EQ(limited.back(), 0.5F) << "a second later";
  gstqtts::Limiter limiter(kLimiterRate);
  std::vector<float> peak = {4};
  std::vector<float> after = {0.5F};
  limiter.Apply(1, &peak);
  limiter.Restart();
  limiter.Apply(1, &after);
  EXPECT_EQ(after[0], 0.5F);
}

// --- the gain

ModelInfo MeasuredModel() {
  ModelInfo model;
  model.path = "/m";
  model.speakers = {"ann", "bob"};
  model.description.loudness = {{"ann", -20}, {"bob", -30}};
  return model;
}

gstqtts::VoiceLevel LevelFor(double target, const std::string& speaker, const ModelInfo& model,
                             const ClonedVoice* voice = nullptr) {
  gstqtts::Settings settings;
  settings.target_loudness = target;
  settings.speaker = speaker;
  return gstqtts::LevelOf(settings, model, voice);
}

// Check: 63
TEST(VoiceLevelTest, IsTheDifferenceToTheTarget) {
  EXPECT_FALSE(LevelFor(0, "ann", MeasuredModel()).on);
  EXPECT_NEAR(LevelFor(-14, "ann", MeasuredModel()).gain, std::pow(10, 0.3), 1e-12);
  EXPECT_NEAR(LevelFor(-14, "BOB", MeasuredModel()).gain, std::pow(10, 0.8), 1e-12);
  EXPECT_NEAR(LevelFor(-40, "", MeasuredModel()).gain, 0.1, 1e-12) << "the first speaker speaks";
  ModelInfo model = MeasuredModel();
  model.description.default_speaker = "bob";
  EXPECT_NEAR(LevelFor(-30, "", model).gain, 1, 1e-12);
  EXPECT_TRUE(LevelFor(-30, "", model).on);
}

TEST(VoiceLevelTest, AClonedVoiceHasItsOwn) {
  ClonedVoice voice;
  EXPECT_FALSE(LevelFor(-20, "", MeasuredModel(), &voice).on);
  voice.loudness = -26;
  EXPECT_NEAR(LevelFor(-20, "", MeasuredModel(), &voice).gain, std::pow(10, 0.3), 1e-12);
}

TEST(VoiceLevelTest, AVoiceThatWasNotMeasuredHasAWarningWithTheRemedy) {
  const ClonedVoice voice;
  EXPECT_THAT(LevelFor(-20, "", MeasuredModel(), &voice).warning, HasSubstr("qtts-tool voice make"));
  ModelInfo model = MeasuredModel();
  model.description.loudness.clear();
  EXPECT_THAT(LevelFor(-20, "bob", model).warning, HasSubstr("speaker \"bob\" is unknown"));
  EXPECT_THAT(LevelFor(-20, "bob", model).warning, HasSubstr("qtts-tool loudness /m --write"));
  model.speakers.clear();
  EXPECT_THAT(LevelFor(-20, "", model).warning, HasSubstr("described voice"));
  EXPECT_EQ(LevelFor(0, "", model).warning, "");
}

// --- the element

class LoudnessTest : public GstTest {
 protected:
  // The sound with these properties, of a model whose speakers were measured or not.
  static std::vector<float> Play(const std::string& properties, bool measured = false) {
    fake::Reset(measured ? MeasuredScript() : fake::Script());  // the samples have the number of the utterance
    Pipeline pipeline("qttssrc name=src text=abc " + properties + " ! audio/x-raw,format=F32LE ! fakesink async=false");
    Recorder& record = pipeline.Record(true);
    EXPECT_TRUE(pipeline.PlayToEnd());
    std::vector<float> sound;
    for (const auto& buffer : record.buffers()) {
      const size_t begin = sound.size();
      sound.resize(begin + buffer.data.size() / sizeof(float));
      std::memcpy(sound.data() + begin, buffer.data.data(), buffer.data.size());
    }
    return sound;
  }
  static fake::Script MeasuredScript() {
    fake::Script script;
    script.info.description.loudness = {{"ann", -20}, {"bob", -30}};
    return script;
  }
};

// Check: 63
TEST_F(LoudnessTest, OffChangesNoBit) {
  const std::vector<float> plain = Play("seed=1");
  ASSERT_EQ(plain.size(), size_t{3} * 1920);
  EXPECT_EQ(Play("seed=1", true), plain);
  EXPECT_EQ(Play("seed=1 target-loudness=0", true), plain);
}

// Check: 63
TEST_F(LoudnessTest, EachVoiceHasItsGain) {
  const std::vector<float> plain = Play("");
  const std::vector<float> ann = Play("speaker=ann target-loudness=-26", true);
  const std::vector<float> bob = Play("speaker=bob target-loudness=-26", true);
  ASSERT_EQ(ann.size(), plain.size());
  ASSERT_EQ(bob.size(), plain.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    ASSERT_FLOAT_EQ(ann[i], plain[i] * static_cast<float>(std::pow(10, -0.3))) << i;
    ASSERT_FLOAT_EQ(bob[i], plain[i] * static_cast<float>(std::pow(10, 0.2))) << i;
  }
}

TEST_F(LoudnessTest, LoudSpeechStaysBelowTheCeiling) {
  const std::vector<float> sound = Play("speaker=bob target-loudness=-6", true);
  const auto [least, most] = std::minmax_element(sound.begin(), sound.end());
  EXPECT_LE(*most, kCeiling);
  EXPECT_GE(*least, -kCeiling);
  EXPECT_GT(*most, 0.8F) << "and is loud";
}

// Check: 63
TEST_F(LoudnessTest, AnUnmeasuredVoiceIsLeftAloneWithOneWarning) {
  const std::vector<float> plain = Play("");
  EXPECT_EQ(Play("target-loudness=-10"), plain);
  Speak speak("idle-mode=wait speaker=ann target-loudness=-10");
  speak.Set(GST_STATE_PLAYING);
  for (int i = 0; i < 3; ++i) ASSERT_NE(speak.Say("a"), 0U);
  speak.AwaitStat("utterances", 3);
  const auto warnings = speak.Pending(GST_MESSAGE_WARNING);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(ParseProblem(warnings[0].get()).text, HasSubstr("qtts-tool loudness"));
}

TEST_F(LoudnessTest, IsASettingOfAnUtterance) {
  fake::SetScript(MeasuredScript());
  Speak speak("idle-mode=wait ! audio/x-raw,format=F32LE");
  speak.Record(true);
  speak.Set(GST_STATE_PLAYING);
  for (const char* target : {"0.0", "-26.0"}) {
    ASSERT_NE(speak.Say("a", ("params, target-loudness=(double)" + std::string(target)).c_str()), 0U);
  }
  speak.Await(2);
  const auto buffers = speak.buffers();
  float loud = 0;
  float soft = 0;
  constexpr size_t kPlace = 75;  // a sample of the tone
  std::memcpy(&loud, buffers[0].data.data() + kPlace * sizeof loud, sizeof loud);
  std::memcpy(&soft, buffers[1].data.data() + kPlace * sizeof soft, sizeof soft);
  EXPECT_NEAR(loud, 0.5, 1e-3);
  EXPECT_FLOAT_EQ(soft, loud * static_cast<float>(std::pow(10, -0.3)));
}

}  // namespace
}  // namespace qtts::testing
