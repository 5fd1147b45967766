// SPDX-License-Identifier: LGPL-2.1-or-later
#include "voice/reference_repair.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "unit/voice/recordings.h"
#include "voice/clone.h"
#include "voice/loudness.h"
#include "voice/reference_check.h"
#include "voice/reference_shape.h"

namespace qtts {
namespace {

using testing::CleanSpeech;
using testing::CutAt;
using testing::Joined;
using testing::MonoRecording;
using testing::Scaled;
using testing::TranscriptOf;

constexpr double kLetters = 14;

double SecondsIn(const std::vector<float>& pcm) { return static_cast<double>(pcm.size()) / kReferenceRate; }

std::vector<float> Silence(double seconds) { return std::vector<float>(static_cast<size_t>(seconds * kReferenceRate)); }

std::vector<std::string> Repair(bool has_text, std::vector<float>* pcm) {
  const auto done = RepairReference(has_text, pcm);
  EXPECT_TRUE(done.ok()) << done.status().message();
  return done.ok() ? *done : std::vector<std::string>();
}

std::string AllOf(const std::vector<std::string>& done) {
  std::string all;
  for (const std::string& change : done) all += change + "; ";
  return all;
}

// After a repair nothing is left to warn of or to repair.
// Check: 60
TEST(ReferenceRepairTest, RepairedRecordingsHaveNoWarning) {
  const std::vector<float> clean = CleanSpeech();
  const struct {
    const char* name;
    std::vector<float> pcm;
    bool has_text;
    const char* told;
  } cases[] = {
      {"silence in front", Joined(Silence(0.8), clean), true, "cut 0.70 s of silence in front"},
      {"silence at the end", Joined(clean, Silence(1)), true, "of silence at the end"},
      {"cut within a word, with its text", CutAt(clean, 4.0), true, "faded the end and appended 0.25 s"},
      {"cut within a word", CutAt(clean, 4.0), false, "back to a pause"},
      {"19 s", Joined(Joined(clean, clean), clean), false, "for a length of"},
      {"quiet", Scaled(clean, 0.05F), true, "to -23.0 LUFS"},
  };
  for (const auto& spoilt : cases) {
    SCOPED_TRACE(spoilt.name);
    std::vector<float> pcm = spoilt.pcm;
    const std::string done = AllOf(Repair(spoilt.has_text, &pcm));
    EXPECT_NE(done.find(spoilt.told), std::string::npos) << done;
    CloneOptions options;
    options.reference_text = TranscriptOf(MeasureShape(pcm).spoken * kLetters);
    for (const ReferenceFinding& finding : CheckReference(MonoRecording(pcm), pcm, options)) {
      ADD_FAILURE() << finding.message();
    }
    EXPECT_NEAR(MeasureLoudness(pcm, kReferenceRate).value_or(0), -23, 0.6);
    EXPECT_LE(SecondsIn(pcm), kMaxGoodSeconds);
    const std::vector<float> once = pcm;
    EXPECT_EQ(AllOf(Repair(spoilt.has_text, &pcm)), "");
    EXPECT_EQ(pcm, once);
  }
}

// The transcript says all of it.
// Check: 60
TEST(ReferenceRepairTest, NothingSpokenIsCutWithATranscript) {
  const std::vector<float> clean = CleanSpeech();
  std::vector<float> pcm = Joined(Joined(clean, clean), clean);
  Repair(true, &pcm);
  EXPECT_GT(SecondsIn(pcm), 18.5);
}

TEST(ReferenceRepairTest, APeakLimitsTheLevel) {
  std::vector<float> pcm = Scaled(CleanSpeech(), 0.001F);
  for (size_t i = 0; i < 40; ++i) pcm[30000 + i] = 0.7F;  // a knock
  Repair(true, &pcm);
  float peak = 0;
  for (const float sample : pcm) peak = std::max(peak, std::fabs(sample));
  EXPECT_NEAR(peak, 0.891F, 0.001F);
}

TEST(ReferenceRepairTest, LessThanASecondOfSoundIsRefused) {
  std::vector<float> pcm = Joined(Joined(Silence(2), CutAt(CleanSpeech(), 0.5)), Silence(2));
  const auto done = RepairReference(true, &pcm);
  EXPECT_EQ(done.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(done.status().message().find("s of sound, expected 1 s"), std::string::npos) << done.status().message();
}

// Keeps what it was given.
class RecordingEncoder : public VoiceEncoder {
 public:
  Result<std::vector<float>> SpeakerVector(std::span<const float> pcm) override {
    heard.assign(pcm.begin(), pcm.end());
    return std::vector<float>{1, 2};
  }
  Result<std::vector<int32_t>> Codes(std::span<const float> pcm) override {
    coded.assign(pcm.begin(), pcm.end());
    return std::vector<int32_t>{3, 4};
  }
  std::vector<float> heard;
  std::vector<float> coded;
};

// Check: 60
TEST(CloneVoiceTest, WarnsAndPreparesIfAsked) {
  const std::vector<float> spoilt = Joined(Silence(0.8), CleanSpeech());
  CloneOptions options;
  options.reference_text = TranscriptOf(MeasureShape(spoilt).spoken * kLetters);
  RecordingEncoder encoder;
  const auto plain = CloneVoice(&encoder, "m", MonoRecording(spoilt), options);
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  ASSERT_EQ(plain->warnings.size(), 1U);
  EXPECT_NE(plain->warnings[0].find("0.80 s of silence"), std::string::npos) << plain->warnings[0];
  EXPECT_EQ(encoder.heard, spoilt) << "exactly the official package without `prepare`";
  options.prepare = true;
  const auto prepared = CloneVoice(&encoder, "m", MonoRecording(spoilt), options);
  ASSERT_TRUE(prepared.ok()) << prepared.status().message();
  EXPECT_TRUE(prepared->warnings.empty());
  std::vector<float> repaired = spoilt;
  Repair(true, &repaired);
  EXPECT_EQ(encoder.heard, repaired);
  EXPECT_EQ(encoder.coded, repaired);
}

// The level of the recording is that of the speech only if the recording is the model's example.
TEST(CloneVoiceTest, OnlyAnInContextVoiceHasTheLoudnessOfItsRecording) {
  const std::vector<float> clean = CleanSpeech();
  RecordingEncoder encoder;
  CloneOptions options;
  const auto timbre = CloneVoice(&encoder, "m", MonoRecording(clean), options);
  ASSERT_TRUE(timbre.ok()) << timbre.status().message();
  EXPECT_EQ(timbre->loudness, std::nullopt);
  options.reference_text = TranscriptOf(MeasureShape(clean).spoken * kLetters);
  const auto manner = CloneVoice(&encoder, "m", MonoRecording(clean), options);
  ASSERT_TRUE(manner.ok()) << manner.status().message();
  EXPECT_EQ(manner->loudness, MeasureLoudness(clean, kReferenceRate));
}

}  // namespace
}  // namespace qtts
