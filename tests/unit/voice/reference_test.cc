// SPDX-License-Identifier: LGPL-2.1-or-later
#include "voice/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

namespace qtts {
namespace {

Recording Tone(double hz, double seconds, int rate, int channels = 1) {
  Recording recording;
  recording.sample_rate = rate;
  recording.channels = channels;
  const auto frames = static_cast<int>(seconds * rate);
  for (int t = 0; t < frames; ++t) {
    for (int c = 0; c < channels; ++c) {
      recording.samples.push_back(static_cast<float>(0.5 * std::sin(2 * std::numbers::pi * hz * t / rate) / (c + 1)));
    }
  }
  return recording;
}

TEST(ReferenceTest, ItsOwnRateIsLeftAlone) {
  const Recording recording = Tone(440, 1.5, kReferenceRate);
  const auto pcm = PrepareReference(recording);
  ASSERT_TRUE(pcm.ok());
  EXPECT_EQ(*pcm, recording.samples);
}

TEST(ReferenceTest, ChannelsAreAveraged) {
  const Recording recording = Tone(440, 1.5, kReferenceRate, 2);
  const auto pcm = PrepareReference(recording);
  ASSERT_TRUE(pcm.ok());
  ASSERT_EQ(pcm->size(), recording.samples.size() / 2);
  for (size_t t = 0; t < pcm->size(); ++t) {
    ASSERT_EQ((*pcm)[t], (recording.samples[2 * t] + recording.samples[2 * t + 1]) / 2);
  }
}

TEST(ReferenceTest, OtherRatesAreResampled) {
  for (const int rate : {8000, 16000, 22050, 44100, 48000, 96000}) {
    for (const int channels : {1, 2}) {
      const auto pcm = PrepareReference(Tone(1000, 1.234, rate, channels));
      ASSERT_TRUE(pcm.ok()) << rate;
      const double expected_length = std::ceil(std::floor(1.234 * rate) * kReferenceRate / rate);
      EXPECT_NEAR(static_cast<double>(pcm->size()), expected_length, 1) << rate;
      // The same tone, except near the ends.
      const double level = channels == 1 ? 0.5 : 0.375;
      for (size_t t = 4000; t < 20000; ++t) {
        const double phase = 2 * std::numbers::pi * 1000 * static_cast<double>(t) / kReferenceRate;
        ASSERT_NEAR(level * std::sin(phase), static_cast<double>((*pcm)[t]), 1e-3) << rate << " Hz, sample " << t;
      }
    }
  }
}

TEST(ReferenceTest, WhatNoVoiceCanComeOfSaysWhatToDo) {
  const auto refused = [](const Recording& recording) {
    const Status status = PrepareReference(recording).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_NE(refused(Tone(440, 0.2, 24000)).find("0.2 s long"), std::string::npos);
  EXPECT_NE(refused(Recording()).find("0 s long"), std::string::npos);
  const std::string minutes = refused(Tone(440, 600, 8000));
  EXPECT_NE(minutes.find("600 s long"), std::string::npos) << minutes;
  EXPECT_NE(minutes.find("cut out"), std::string::npos) << minutes;
  Recording silence;
  silence.samples.assign(72000, 1e-5F);
  EXPECT_NE(refused(silence).find("silent"), std::string::npos);
  Recording broken = Tone(440, 2, 24000);
  broken.samples[77] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(refused(broken).find("finite"), std::string::npos);
  Recording slow = Tone(440, 2, 24000);
  slow.sample_rate = 100;
  EXPECT_NE(refused(slow).find("100 samples a second"), std::string::npos);
  slow.sample_rate = 24000;
  slow.channels = 0;
  EXPECT_NE(refused(slow).find("0 channels"), std::string::npos);
}

}  // namespace
}  // namespace qtts
