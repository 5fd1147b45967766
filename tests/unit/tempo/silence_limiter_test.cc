// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/silence_limiter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace qtts {
namespace {

constexpr int kLimiterRate = 24000;
constexpr size_t kLimiterBlock = 240;

void AddTone(size_t samples, std::vector<float>* sound) {
  for (size_t i = 0; i < samples; ++i) sound->push_back(0.3F * std::cos(0.05F * static_cast<float>(i)));
}

// Silence as a model makes it: of a low level, not of zeros.
void AddNoise(size_t samples, std::vector<float>* sound) {
  for (size_t i = 0; i < samples; ++i) sound->push_back(0.002F * std::sin(1.7F * static_cast<float>(i)));
}

struct Limited {
  std::vector<float> kept;
  std::vector<KeptRun> runs;
};

Limited Limit(const std::vector<float>& sound, uint64_t maximum, size_t cut = 1920) {
  SilenceLimiter limiter(kLimiterRate, maximum);
  Limited limited;
  for (size_t begin = 0; begin < sound.size(); begin += cut) {
    limiter.Put(std::span(sound).subspan(begin, std::min(cut, sound.size() - begin)), &limited.kept, &limited.runs);
  }
  limiter.Finish(&limited.kept, &limited.runs);
  return limited;
}

size_t LengthOf(const std::vector<KeptRun>& runs) {
  size_t length = 0;
  for (const KeptRun& run : runs) length += run.samples;
  return length;
}

TEST(SilenceLimiter, ShortSilencesPass) {
  std::vector<float> sound;
  AddTone(2400, &sound);
  AddNoise(4800, &sound);
  AddTone(2400, &sound);
  AddNoise(4800, &sound);
  const Limited limited = Limit(sound, 4800 + kLimiterBlock);
  EXPECT_EQ(limited.kept, sound);
  EXPECT_EQ(limited.runs, (std::vector<KeptRun>{{0, sound.size()}}));
}

TEST(SilenceLimiter, LongSilenceIsShortened) {
  std::vector<float> sound;
  AddTone(2400, &sound);
  AddNoise(24000, &sound);
  AddTone(2400, &sound);
  const Limited limited = Limit(sound, 4800);
  EXPECT_EQ(limited.kept.size(), size_t{2400 + 4800 + 2400});
  EXPECT_EQ(LengthOf(limited.runs), limited.kept.size());
  // The beginning and the last block of the silence stay.
  EXPECT_EQ(limited.runs, (std::vector<KeptRun>{{0, 2400 + 4800 - kLimiterBlock},
                                                {2400 + 24000 - kLimiterBlock, kLimiterBlock + 2400}}));
  EXPECT_TRUE(std::equal(sound.end() - 2400, sound.end(), limited.kept.end() - 2400));
}

TEST(SilenceLimiter, JoinHasNoStep) {
  std::vector<float> sound;
  AddTone(2400, &sound);
  AddNoise(24000, &sound);
  AddTone(2400, &sound);
  const Limited limited = Limit(sound, 4800);
  float largest = 0;
  for (size_t i = 2400; i + 1 < 2400 + 4800; ++i) {
    largest = std::max(largest, std::abs(limited.kept[i + 1] - limited.kept[i]));
  }
  float largest_before = 0;
  for (size_t i = 2400; i + 1 < 2400 + 24000; ++i) {
    largest_before = std::max(largest_before, std::abs(sound[i + 1] - sound[i]));
  }
  EXPECT_LE(largest, 1.05F * largest_before);
}

TEST(SilenceLimiter, SilenceAtTheEndFadesOut) {
  std::vector<float> sound;
  AddTone(2400, &sound);
  AddNoise(48000, &sound);
  const Limited limited = Limit(sound, 4800);
  EXPECT_EQ(limited.kept.size(), size_t{2400 + 4800});
  EXPECT_EQ(limited.kept.back(), 0);
}

TEST(SilenceLimiter, LeastIsTwoBlocks) {
  std::vector<float> sound;
  AddTone(2400, &sound);
  AddNoise(24000, &sound);
  AddTone(2400, &sound);
  EXPECT_EQ(Limit(sound, 1).kept.size(), size_t{2400 + 2 * kLimiterBlock + 2400});
}

TEST(SilenceLimiter, OutputDoesNotDependOnTheCut) {
  std::vector<float> sound;
  for (const size_t silence : {size_t{100}, size_t{5000}, size_t{9111}, size_t{30000}}) {
    AddTone(1777, &sound);
    AddNoise(silence, &sound);
  }
  const Limited expected = Limit(sound, 3600, sound.size());
  EXPECT_LT(expected.kept.size(), sound.size());
  for (const size_t cut : {size_t{1}, size_t{239}, size_t{241}, size_t{1920}}) {
    const Limited limited = Limit(sound, 3600, cut);
    EXPECT_EQ(limited.kept, expected.kept) << cut;
    EXPECT_EQ(limited.runs, expected.runs) << cut;
  }
}

TEST(SilenceLimiter, NothingButSilence) {
  std::vector<float> sound;
  AddNoise(50000, &sound);
  const Limited limited = Limit(sound, 4800);
  EXPECT_EQ(limited.kept.size(), size_t{4800});
  EXPECT_TRUE(Limit({}, 4800).kept.empty());
}

}  // namespace
}  // namespace qtts
