// SPDX-License-Identifier: LGPL-2.1-or-later
// Cloning against the official package: spectrogram, x-vector and codes of recordings at several rates, and speech with
// the voice.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "cpu/mel_spectrogram.h"
#include "golden/golden_case.h"
#include "golden/golden_voice.h"
#include "qtts/engine.h"
#include "unit/cpu/naive_voice.h"
#include "voice/reference.h"

namespace qtts::golden {
namespace {

// Tolerance of log-mel values: against the package in bands with at least a hundredth of the frame's loudest, against
// the definition in double precision in all bands. In quieter bands the logarithm magnifies the errors of the package's
// F32 transform. There the values are compared without the logarithm, relative to the loudest.
constexpr double kMelTolerance = 1e-5;
constexpr double kLoud = 0.01;
constexpr double kEnergyTolerance = 1e-6;
constexpr double kClonedPcmTolerance = 1e-5;

class GoldenVoice : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto golden = LoadCase(GetParam());
    ASSERT_TRUE(golden.ok()) << golden.status().message();
    golden_ = *golden;
    auto recording = RecordingOf(*golden_);
    ASSERT_TRUE(recording.ok()) << recording.status().message();
    recording_ = *std::move(recording);
  }

  std::shared_ptr<const GoldenCase> golden_;
  Recording recording_;
};

TEST_P(GoldenVoice, Spectrogram) {
  const auto pcm = PrepareReference(recording_);
  ASSERT_TRUE(pcm.ok()) << pcm.status().message();
  const GoldenTensor& expected = golden_->tensors.at("mel");
  const cpu::MelSpectrogram spectrogram(expected.shape[1]);
  const std::vector<float> mels = spectrogram.Compute(*pcm);
  const auto& kept = golden_->document["mel_frames"];
  ASSERT_EQ(static_cast<int64_t>(mels.size()), kept[0].get<int64_t>() * spectrogram.bins());
  double worst_energy = 0;
  double worst_log = 0;
  for (size_t i = 1; i < kept.size(); ++i) {
    const auto row = std::span(mels).subspan(kept[i].get<size_t>() * static_cast<size_t>(spectrogram.bins()));
    const auto official = expected.Row(static_cast<int64_t>(i) - 1);
    const auto loudest = static_cast<double>(*std::max_element(official.begin(), official.end()));
    for (size_t b = 0; b < official.size(); ++b) {
      const auto ours = static_cast<double>(row[b]);
      const auto theirs = static_cast<double>(official[b]);
      worst_energy = std::max(worst_energy, std::fabs(std::exp(ours - loudest) - std::exp(theirs - loudest)));
      if (theirs > loudest + std::log(kLoud)) worst_log = std::max(worst_log, std::fabs(ours - theirs));
    }
  }
  EXPECT_LE(worst_energy, kEnergyTolerance);
  ExpectError(worst_log, kMelTolerance);

  // Then in every band of some frames without padding.
  constexpr size_t kHop = 256;
  constexpr size_t kReach = 1152;  // samples that a frame depends on, from the second frame before it on
  double worst = 0;
  double worst_official = 0;
  for (size_t i = 2; i + 1 < kept.size(); i += 8) {
    const auto frame = kept[i].get<size_t>();
    const auto begin = pcm->begin() + static_cast<ptrdiff_t>((frame - 2) * kHop);
    const naive::Vector exact =
        naive::Mel(naive::Vector(begin, begin + kReach), static_cast<int>(spectrogram.bins()))[2];
    const auto row = std::span(mels).subspan(frame * exact.size());
    const auto official = expected.Row(static_cast<int64_t>(i) - 1);
    for (size_t b = 0; b < exact.size(); ++b) {
      worst = std::max(worst, std::fabs(static_cast<double>(row[b]) - exact[b]));
      worst_official = std::max(worst_official, std::fabs(static_cast<double>(official[b]) - exact[b]));
    }
  }
  EXPECT_LE(worst, kMelTolerance);
  ::testing::Test::RecordProperty("error_of_the_package", std::to_string(worst_official));
}

// Through the engine, as a user would: recording to voice, voice to speech.
TEST_P(GoldenVoice, CloneAndSpeak) {
  EngineOptions options;
  options.model_path = golden_->folder;
  options.device = Device::kCpu;
  options.threads = 2;
  const auto engine = Engine::Load(options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  const auto voice = CloneOf(*golden_, **engine, recording_);
  ASSERT_TRUE(voice.ok()) << voice.status().message();
  ExpectVoice(*voice, *golden_);
  const std::vector<float> pcm = ExpectSpeech(engine->get(), *voice, *golden_);
  if (golden_->tensors.contains("pcm")) {
    ExpectError(AbsoluteError(pcm, golden_->tensors.at("pcm").values), kClonedPcmTolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, GoldenVoice, ::testing::ValuesIn(Cases({CaseKind::kCloned})), CaseTestName);

}  // namespace
}  // namespace qtts::golden
