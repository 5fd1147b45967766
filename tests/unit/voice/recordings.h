// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_UNIT_VOICE_RECORDINGS_H_
#define QTTS_TESTS_UNIT_VOICE_RECORDINGS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/wav.h"
#include "voice/reference.h"

// A clean recording of speech, and what spoils it.
namespace qtts::testing {

// 6.3 s of speech at kReferenceRate.
inline std::vector<float> CleanSpeech() {
  static const std::vector<float> samples = [] {
    const auto recording = ReadWav(std::string(QTTS_TEST_REFERENCES) + "/speech-24000.wav");
    EXPECT_TRUE(recording.ok()) << recording.status().message();
    return recording.ok() ? recording->samples : std::vector<float>();
  }();
  return samples;
}

inline Recording MonoRecording(std::vector<float> samples) {
  Recording recording;
  recording.samples = std::move(samples);
  recording.sample_rate = kReferenceRate;
  return recording;
}

// White noise with this root mean square, the same everywhere.
inline std::vector<float> WhiteNoise(size_t count, double level) {
  std::vector<float> noise(count);
  uint64_t state = 1;
  for (float& sample : noise) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const double uniform = static_cast<double>(state >> 40U) / static_cast<double>(1U << 24U) - 0.5;
    sample = static_cast<float>(uniform * level * std::sqrt(12.0));
  }
  return noise;
}

inline std::vector<float> Joined(std::vector<float> a, const std::vector<float>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline std::vector<float> Scaled(std::vector<float> samples, float gain) {
  for (float& sample : samples) sample *= gain;
  return samples;
}

inline std::vector<float> Added(std::vector<float> samples, const std::vector<float>& other) {
  for (size_t i = 0; i < samples.size(); ++i) samples[i] += other[i];
  return samples;
}

inline std::vector<float> Clamped(std::vector<float> samples, float limit) {
  for (float& sample : samples) sample = std::clamp(sample, -limit, limit);
  return samples;
}

// Its first `seconds`.
inline std::vector<float> CutAt(std::vector<float> samples, double seconds) {
  samples.resize(static_cast<size_t>(seconds * kReferenceRate));
  return samples;
}

// A transcript of so many letters.
inline std::string TranscriptOf(double letters) {
  std::string text;
  for (int i = 0; i < static_cast<int>(letters); ++i) text += i % 5 == 4 ? "o " : "d";
  return text;
}

}  // namespace qtts::testing

#endif  // QTTS_TESTS_UNIT_VOICE_RECORDINGS_H_
