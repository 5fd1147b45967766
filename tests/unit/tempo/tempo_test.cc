// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/tempo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

namespace qtts {
namespace {

constexpr int kTempoRate = 24000;
constexpr size_t kTempoFrame = 1920;
constexpr double kTempoRates[] = {0.25, 0.5, 0.75, 0.9, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0};

// A voice of a pitch that glides around `pitch` Hz, with harmonics and pauses.
std::vector<float> Voiced(double pitch, size_t samples) {
  std::vector<float> sound(samples);
  double phase = 0;
  for (size_t i = 0; i < samples; ++i) {
    const double time = static_cast<double>(i) / kTempoRate;
    phase += pitch * (1 + 0.1 * std::sin(3 * time)) / kTempoRate;
    double value = 0;
    for (int harmonic = 1; harmonic <= 8; ++harmonic) {
      value += std::sin(2 * std::numbers::pi * harmonic * phase) / harmonic;
    }
    const double envelope = std::max(0.0, std::sin(2 * std::numbers::pi * time));
    sound[i] = static_cast<float>(0.3 * envelope * value);
  }
  return sound;
}

std::vector<float> ChangeTempo(const std::vector<float>& sound, double rate, size_t cut = kTempoFrame) {
  Tempo tempo(kTempoRate);
  tempo.SetRate(rate);
  std::vector<float> out;
  for (size_t begin = 0; begin < sound.size(); begin += cut) {
    tempo.Put(std::span(sound).subspan(begin, std::min(cut, sound.size() - begin)));
    tempo.Take(&out);
  }
  tempo.Finish();
  tempo.Take(&out);
  EXPECT_EQ(tempo.position(), static_cast<double>(sound.size()));
  EXPECT_EQ(tempo.source_samples(), sound.size());
  return out;
}

// The mean period of a sound, in samples, by the peak of its autocorrelation around `expected`.
double PeriodOf(const std::vector<float>& sound, size_t expected) {
  double best = 0;
  size_t best_lag = 0;
  for (size_t lag = expected * 7 / 10; lag <= expected * 13 / 10; ++lag) {
    double sum = 0;
    for (size_t i = lag; i < sound.size(); ++i) {
      sum += static_cast<double>(sound[i]) * static_cast<double>(sound[i - lag]);
    }
    if (sum > best) {
      best = sum;
      best_lag = lag;
    }
  }
  return static_cast<double>(best_lag);
}

TEST(Tempo, LengthIsThatOfTheSourceByTheRate) {
  for (const double rate : kTempoRates) {
    for (const size_t samples :
         {size_t{0}, size_t{1}, size_t{100}, size_t{359}, size_t{720}, size_t{1920}, size_t{48001}}) {
      const size_t length = ChangeTempo(Voiced(120, samples), rate).size();
      EXPECT_EQ(length, static_cast<size_t>(std::llround(static_cast<double>(samples) / rate)))
          << rate << " " << samples;
    }
  }
}

TEST(Tempo, OutputDoesNotDependOnTheCut) {
  std::mt19937 random(1);  // NOLINT(cert-msc51-cpp): the same cuts in every run
  const std::vector<float> sound = Voiced(180, 40000);
  for (const double rate : kTempoRates) {
    const std::vector<float> expected = ChangeTempo(sound, rate, sound.size());
    for (const size_t cut : {size_t{1}, size_t{7}, size_t{480}, kTempoFrame}) {
      EXPECT_EQ(ChangeTempo(sound, rate, cut), expected) << rate << " " << cut;
    }
    Tempo tempo(kTempoRate);
    tempo.SetRate(rate);
    std::vector<float> out;
    for (size_t begin = 0; begin < sound.size();) {
      const size_t cut = std::min<size_t>(random() % 4000, sound.size() - begin);
      tempo.Put(std::span(sound).subspan(begin, cut));
      begin += cut;
      if (random() % 2 == 0) tempo.Take(&out);
    }
    tempo.Finish();
    tempo.Take(&out);
    EXPECT_EQ(out, expected) << rate;
  }
}

TEST(Tempo, RateOneCopies) {
  const std::vector<float> sound = Voiced(120, 30000);
  EXPECT_EQ(ChangeTempo(sound, 1), sound);
}

TEST(Tempo, PitchStays) {
  for (const double pitch : {85.0, 120.0, 210.0, 330.0}) {
    const std::vector<float> sound = Voiced(pitch, 48000);
    const auto period = static_cast<size_t>(kTempoRate / pitch);
    const double before = PeriodOf(sound, period);
    for (const double rate : {0.5, 0.75, 1.25, 1.5, 2.0}) {
      EXPECT_NEAR(PeriodOf(ChangeTempo(sound, rate), period), before, 0.03 * before) << pitch << " Hz, rate " << rate;
    }
  }
}

// A splice of a steady tone has to be as smooth as the tone.
TEST(Tempo, MakesNoClicks) {
  std::vector<float> tone(48000);
  for (size_t i = 0; i < tone.size(); ++i) {
    tone[i] = 0.5F * static_cast<float>(std::sin(2 * std::numbers::pi * 200 * static_cast<double>(i) / kTempoRate));
  }
  const auto largest_step = [](const std::vector<float>& sound) {
    float largest = 0;
    for (size_t i = 1; i < sound.size(); ++i) largest = std::max(largest, std::abs(sound[i] - sound[i - 1]));
    return largest;
  };
  for (const double rate : kTempoRates) {
    const std::vector<float> out = ChangeTempo(tone, rate);
    EXPECT_LT(largest_step(out), 1.3F * largest_step(tone)) << rate;
    EXPECT_NEAR(*std::ranges::max_element(out), 0.5F, 0.01F) << rate;
  }
}

TEST(Tempo, SilenceStaysSilence) {
  const std::vector<float> silence(20000, 0.0F);
  for (const double rate : kTempoRates) {
    const std::vector<float> out = ChangeTempo(silence, rate);
    EXPECT_TRUE(std::ranges::all_of(out, [](float sample) { return sample == 0; })) << rate;
  }
}

TEST(Tempo, FirstFrameBringsTheFirstSound) {
  const std::vector<float> frame = Voiced(120, kTempoFrame);
  for (const double rate : kTempoRates) {
    Tempo tempo(kTempoRate);
    tempo.SetRate(rate);
    tempo.Put(frame);
    std::vector<float> out;
    ASSERT_GE(tempo.Take(&out), static_cast<size_t>(kTempoRate / 100)) << rate;
    EXPECT_EQ(out[0], frame[0]);
    EXPECT_TRUE(std::equal(out.begin(), out.begin() + 240, frame.begin())) << rate;
  }
}

TEST(Tempo, RateChangesWithinTheSound) {
  const std::vector<float> sound = Voiced(150, 96000);
  Tempo tempo(kTempoRate);
  std::vector<float> out;
  double expected = 0;
  const double rates[] = {1, 2, 0.5, 1};
  for (size_t part = 0; part < 4; ++part) {
    tempo.SetRate(rates[part]);
    const double before = tempo.position();
    const size_t length = out.size();
    tempo.Put(std::span(sound).subspan(part * 24000, 24000));
    if (part == 3) tempo.Finish();
    tempo.Take(&out);
    expected = (tempo.position() - before) / rates[part];
    EXPECT_NEAR(static_cast<double>(out.size() - length), expected, 1) << part;
    // The rest is made at the next rate.
    EXPECT_GT(tempo.position(), static_cast<double>((part + 1) * 24000) - 2500);
  }
  EXPECT_NEAR(static_cast<double>(out.size()), 24000 + 12000 + 48000 + 24000, 2500);
}

// Blocks have another length at another rate, also right after the first block.
TEST(Tempo, RateChangesAfterEachCut) {
  const std::vector<float> sound = Voiced(150, 48000);
  for (const size_t cut : {size_t{1}, size_t{400}, size_t{1200}, kTempoFrame}) {
    Tempo tempo(kTempoRate);
    std::vector<float> out;
    double expected = 0;
    size_t cuts = 0;
    for (size_t begin = 0; begin < sound.size(); begin += cut, ++cuts) {
      tempo.SetRate(kTempoRates[(cuts + 7) % std::size(kTempoRates)]);
      tempo.Put(std::span(sound).subspan(begin, std::min(cut, sound.size() - begin)));
      if (begin + cut >= sound.size()) tempo.Finish();
      const double before = tempo.position();
      tempo.Take(&out);
      expected += (tempo.position() - before) / tempo.rate();
    }
    EXPECT_NEAR(static_cast<double>(out.size()), expected, 1) << cut;
    EXPECT_EQ(tempo.position(), static_cast<double>(sound.size()));
    EXPECT_LE(std::abs(*std::ranges::max_element(out)), *std::ranges::max_element(sound)) << cut;
  }
}

TEST(Tempo, RateIsClamped) {
  Tempo tempo(kTempoRate);
  tempo.SetRate(100);
  EXPECT_EQ(tempo.rate(), Tempo::kMaxRate);
  tempo.SetRate(0);
  EXPECT_EQ(tempo.rate(), Tempo::kMinRate);
}

TEST(Tempo, PositionAdvancesByTheRate) {
  const std::vector<float> sound = Voiced(120, 48000);
  Tempo tempo(kTempoRate);
  tempo.SetRate(1.5);
  std::vector<float> out;
  for (size_t begin = 0; begin < sound.size(); begin += kTempoFrame) {
    tempo.Put(std::span(sound).subspan(begin, kTempoFrame));
    tempo.Take(&out);
    EXPECT_NEAR(tempo.position(), 1.5 * static_cast<double>(out.size()), 1e-6);
  }
}

}  // namespace
}  // namespace qtts
