// SPDX-License-Identifier: LGPL-2.1-or-later
#include "voice/reference_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "unit/voice/recordings.h"
#include "voice/loudness.h"
#include "voice/reference.h"
#include "voice/reference_shape.h"

namespace qtts {
namespace {

using testing::Added;
using testing::Clamped;
using testing::CleanSpeech;
using testing::CutAt;
using testing::Joined;
using testing::MonoRecording;
using testing::Scaled;
using testing::TranscriptOf;
using testing::WhiteNoise;

// Letters a second of ordinary speech.
constexpr double kUsualRate = 14;
constexpr size_t kSecond = kReferenceRate;

std::vector<ReferenceFinding> Check(const std::vector<float>& pcm, const std::string& text, bool padded = false) {
  CloneOptions options;
  options.reference_text = text;
  options.pad_reference = padded;
  return CheckReference(MonoRecording(pcm), pcm, options);
}

// A text that fits the sound.
std::string FittingText(const std::vector<float>& pcm) { return TranscriptOf(MeasureShape(pcm).spoken * kUsualRate); }

std::string RepeatedText(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

struct Spoilt {
  const char* name;
  std::vector<float> pcm;
  std::string text;
  ReferenceFault fault;
  const char* value;   // in the message, as measured
  const char* remedy;  // in the message
};

// The table of doc/modes/recordings.md.
std::vector<Spoilt> TenSpoilt() {
  const std::vector<float> clean = CleanSpeech();
  const std::string text = FittingText(clean);
  const double spoken = MeasureShape(clean).spoken;
  const std::vector<float> silence(kSecond * 4 / 5);
  const std::vector<float> room = WhiteNoise(kSecond * 4 / 5, 5e-4);
  const std::vector<float> cut = CutAt(clean, 4.0);
  const std::vector<float> thrice = Joined(Joined(clean, clean), clean);
  return {
      {"silence in front", Joined(silence, clean), text, ReferenceFault::kSilenceInFront, "0.80 s", "cut it to 0.1 s"},
      {"a quiet room in front", Joined(room, clean), text, ReferenceFault::kSilenceInFront, "0.80 s",
       "cut it to 0.1 s"},
      {"cut within a word", cut, FittingText(cut), ReferenceFault::kLoudTail, " dB of its speech", "cut it in a pause"},
      {"19 s with a transcript", thrice, FittingText(thrice), ReferenceFault::kLong, "19.0 s", "cut out 3 to 15 s"},
      {"a transcript of more than is said", clean, RepeatedText(text, 3), ReferenceFault::kTextTooLong, "41.8",
       "leave out the words"},
      {"a transcript of a part", clean, TranscriptOf(spoken * 4), ReferenceFault::kTextTooShort, " 3.9",
       "write down all words"},
      {"a transcript in Chinese of more than is said", clean,
       RepeatedText("\u4F60\u597D", static_cast<int>(spoken * 5)), ReferenceFault::kTextTooLong, "3",
       "leave out the words"},
      {"quiet", Scaled(clean, 0.05F), text, ReferenceFault::kQuiet, " LUFS", "record it louder"},
      {"clipped", Clamped(Scaled(clean, 2), 0.6F), text, ReferenceFault::kClipped, " %)", "at a lower level"},
      {"noise", Added(clean, WhiteNoise(clean.size(), 0.08)), text, ReferenceFault::kNoisy, " dB below",
       "in a quiet place"},
  };
}

// Check: 60
TEST(ReferenceCheckTest, ACleanRecordingHasNoWarning) {
  const std::vector<float> clean = CleanSpeech();
  for (const std::string& text : {std::string(), FittingText(clean)}) {
    for (const ReferenceFinding& finding : Check(clean, text)) ADD_FAILURE() << finding.message();
  }
}

// Check: 60
TEST(ReferenceCheckTest, TenSpoiltRecordingsHaveOneWarningEach) {
  const std::vector<Spoilt> table = TenSpoilt();
  ASSERT_EQ(table.size(), 10U);
  for (const Spoilt& spoilt : table) {
    SCOPED_TRACE(spoilt.name);
    const auto findings = Check(spoilt.pcm, spoilt.text);
    for (const ReferenceFinding& finding : findings) {
      EXPECT_EQ(static_cast<int>(finding.fault), static_cast<int>(spoilt.fault)) << finding.message();
      EXPECT_NE(finding.message().find(spoilt.value), std::string::npos) << finding.message();
      EXPECT_NE(finding.message().find(spoilt.remedy), std::string::npos) << finding.message();
    }
    EXPECT_EQ(findings.size(), 1U);
  }
}

// Below the gate of the measurement a recording has no loudness, and above -60 dB it is not refused as silent.
TEST(ReferenceCheckTest, ARecordingBelowTheGateIsQuiet) {
  const std::vector<float> clean = CleanSpeech();
  float peak = 0;
  for (const float sample : clean) peak = std::max(peak, std::fabs(sample));
  const std::vector<float> quietest = Scaled(clean, 1.1e-3F / peak);
  ASSERT_TRUE(PrepareReference(MonoRecording(quietest)).ok());
  ASSERT_FALSE(MeasureLoudness(quietest, kReferenceRate));
  const auto findings = Check(quietest, "");
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(static_cast<int>(findings[0].fault), static_cast<int>(ReferenceFault::kQuiet));
  EXPECT_NE(findings[0].message().find("is quiet, below -70 LUFS"), std::string::npos) << findings[0].message();
  EXPECT_EQ(findings[0].message().find("prepared"), std::string::npos) << "the level of such a sound is not known";
  // Neither is quiet: one is too short for a loudness, the other one too loud.
  EXPECT_TRUE(Check(CutAt(clean, 0.3), "").empty());
  for (const ReferenceFinding& finding : Check(Scaled(clean, 1000), "")) {
    EXPECT_NE(static_cast<int>(finding.fault), static_cast<int>(ReferenceFault::kQuiet)) << finding.message();
  }
}

// Without a transcript only the timbre is cloned: beginning, end and length do not matter.
// Check: 60
TEST(ReferenceCheckTest, OnlyAnExampleHasToFit) {
  for (const Spoilt& spoilt : TenSpoilt()) {
    SCOPED_TRACE(spoilt.name);
    const bool matters = spoilt.fault == ReferenceFault::kQuiet || spoilt.fault == ReferenceFault::kClipped ||
                         spoilt.fault == ReferenceFault::kNoisy;
    EXPECT_EQ(Check(spoilt.pcm, "").size(), matters ? 1U : 0U);
  }
  const std::vector<float> cut = CutAt(CleanSpeech(), 4.0);
  EXPECT_TRUE(Check(cut, FittingText(cut), true).empty()) << "the padding makes the end quiet";
}

// Clipping is found in the recording as it came, per channel; in what the encoders get it may not be seen any more.
TEST(ReferenceCheckTest, ClippingOfOneChannel) {
  const std::vector<float> clean = CleanSpeech();
  const std::vector<float> clipped = Clamped(Scaled(clean, 2), 0.6F);
  Recording stereo;
  stereo.channels = 2;
  stereo.sample_rate = kReferenceRate;
  for (size_t i = 0; i < clean.size(); ++i) {
    stereo.samples.push_back(0.5F * clean[i]);
    stereo.samples.push_back(clipped[i]);
  }
  const auto findings = CheckReference(stereo, clean, {});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(static_cast<int>(findings[0].fault), static_cast<int>(ReferenceFault::kClipped));
  // A tone reaches its peak in every period, for one sample at a time.
  std::vector<float> tone;
  for (size_t i = 0; i < 2 * kSecond; ++i)
    tone.push_back(static_cast<float>(0.5 * std::sin(0.05 * static_cast<double>(i))));
  for (const ReferenceFinding& finding : CheckReference(MonoRecording(tone), clean, {})) {
    ADD_FAILURE() << finding.message();
  }
}

TEST(ReferenceCheckTest, TextsOfAllScriptsAreCounted) {
  EXPECT_EQ(CountSpokenLetters(""), 0);
  EXPECT_EQ(CountSpokenLetters(" ...! \u2014 \u3002\n"), 0);
  EXPECT_EQ(CountSpokenLetters("Hello, world."), 10);
  EXPECT_EQ(CountSpokenLetters("Gr\u00FC\u00DFe"), 5);
  EXPECT_EQ(CountSpokenLetters("\u041F\u0440\u0438"), 3);
  EXPECT_EQ(CountSpokenLetters("42"), 8);
  EXPECT_EQ(CountSpokenLetters("\u4F60\u597D"), 7);
  EXPECT_EQ(CountSpokenLetters("\u3053\u3093"), 4);
  EXPECT_EQ(CountSpokenLetters("\uC548\uB155"), 5);
}

TEST(ReferenceShapeTest, FindsSoundAndPauses) {
  const std::vector<float> tone = [] {
    std::vector<float> samples;
    for (size_t i = 0; i < kSecond; ++i)
      samples.push_back(static_cast<float>(0.5 * std::sin(0.1 * static_cast<double>(i))));
    return samples;
  }();
  const std::vector<float> quiet = WhiteNoise(kSecond / 2, 1e-4);
  // Half a second, a second of tone, half a second, a second of tone, half a second.
  const auto shape = MeasureShape(Joined(Joined(Joined(quiet, tone), Joined(quiet, tone)), quiet));
  EXPECT_EQ(shape.begin, kSecond / 2);
  EXPECT_EQ(shape.end, kSecond * 3);
  EXPECT_NEAR(shape.spoken, 2, 0.011);  // the pause is too long to be part of the speech
  EXPECT_NEAR(shape.speech, -9, 0.1);
  EXPECT_NEAR(shape.noise, -80, 1);
  EXPECT_LT(shape.tail, shape.tail_limit);
  const auto joined = MeasureShape(Joined(Joined(tone, CutAt(quiet, 0.28)), tone));
  EXPECT_NEAR(joined.spoken, 2.28, 0.011);
  EXPECT_GT(joined.tail, joined.tail_limit);
  const auto silent = MeasureShape(std::vector<float>(kSecond));
  EXPECT_EQ(silent.end, 0U);
  EXPECT_EQ(MeasureShape(std::vector<float>(10)).levels.size(), 0U);
}

}  // namespace
}  // namespace qtts
