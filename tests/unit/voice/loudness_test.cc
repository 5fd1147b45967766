// SPDX-License-Identifier: LGPL-2.1-or-later
#include "voice/loudness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <optional>
#include <random>
#include <vector>

namespace qtts {
namespace {

std::vector<float> Tone(double amplitude, double hertz, double seconds, int rate) {
  std::vector<float> tone(static_cast<size_t>(seconds * rate));
  for (size_t i = 0; i < tone.size(); ++i) {
    tone[i] = static_cast<float>(amplitude * std::sin(2 * std::numbers::pi * hertz * static_cast<double>(i) / rate));
  }
  return tone;
}

// A filter of BS.1770, annex 1, tables 1 and 2: b0, b1, b2, a1, a2 for 48 kHz.
using Biquad = std::array<double, 5>;
constexpr Biquad kShelf = {1.53512485958697, -2.69169618940638, 1.19839281085285, -1.69065929318241, 0.73248077421585};
constexpr Biquad kHighPass = {1.0, -2.0, 1.0, -1.99004745483398, 0.99007225036621};

std::vector<double> Filtered(const Biquad& filter, const std::vector<double>& in) {
  std::vector<double> out(in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    const auto at = [i](const std::vector<double>& x, size_t back) { return i >= back ? x[i - back] : 0.0; };
    out[i] = filter[0] * in[i] + filter[1] * at(in, 1) + filter[2] * at(in, 2) - filter[3] * at(out, 1) -
             filter[4] * at(out, 2);
  }
  return out;
}

double LoudnessOfPower(double power) { return -0.691 + 10 * std::log10(power); }

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// BS.1770-4 for one channel at 48 kHz, as it is written: blocks of 400 ms, one each 100 ms, and both gates.
double ReferenceLoudness(const std::vector<float>& sound) {
  const std::vector<double> weighted = Filtered(kHighPass, Filtered(kShelf, {sound.begin(), sound.end()}));
  std::vector<double> powers;
  for (size_t begin = 0; begin + 19200 <= weighted.size(); begin += 4800) {
    double power = 0;
    for (size_t i = begin; i < begin + 19200; ++i) power += weighted[i] * weighted[i] / 19200;
    powers.push_back(power);
  }
  std::erase_if(powers, [](double power) { return LoudnessOfPower(power) <= -70; });
  const double gate = LoudnessOfPower(Mean(powers)) - 10;
  std::erase_if(powers, [gate](double power) { return LoudnessOfPower(power) <= gate; });
  return LoudnessOfPower(Mean(powers));
}

TEST(LoudnessTest, OfATone) {
  for (const int rate : {24000, 48000}) {
    EXPECT_NEAR(*MeasureLoudness(Tone(1, 997, 5, rate), rate), -3.01, 0.05) << "0 dBFS in one channel";
    EXPECT_NEAR(*MeasureLoudness(Tone(0.1, 997, 5, rate), rate), -23.01, 0.05);
  }
}

// Check: 63
TEST(LoudnessTest, IsTheDefinition) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> value(-1, 1);
  std::vector<float> sound(size_t{48000} * 8);
  for (size_t i = 0; i < sound.size(); ++i) {
    // Loud, soft and silent seconds, so that both gates matter.
    const std::array<float, 4> levels = {0.5F, 0.02F, 0.1F, 0.0F};
    sound[i] = levels[i / 48000 % 4] * value(random);
  }
  EXPECT_NEAR(*MeasureLoudness(sound, 48000), ReferenceLoudness(sound), 0.02);
}

TEST(LoudnessTest, SilenceAndShortSoundsHaveNone) {
  EXPECT_EQ(MeasureLoudness(std::vector<float>(48000), 24000), std::nullopt);
  EXPECT_EQ(MeasureLoudness({}, 24000), std::nullopt);
  EXPECT_EQ(MeasureLoudness(Tone(1, 997, 0.39, 24000), 24000), std::nullopt);
  EXPECT_NE(MeasureLoudness(Tone(1, 997, 0.41, 24000), 24000), std::nullopt);
  EXPECT_EQ(MeasureLoudness(Tone(1e4, 997, 1, 24000), 24000), std::nullopt) << "far beyond full scale";
}

TEST(LoudnessTest, TextKeepsIt) {
  EXPECT_EQ(LoudnessText(-23.014), "-23.01");
  EXPECT_EQ(LoudnessText(-20), "-20.00");
  EXPECT_EQ(ParseLoudness("-23.01"), -23.01);
  for (const char* wrong : {"", "-", "-71", "11", "inf", "nan", "-20 ", " -20", "-20,5", "0x10"}) {
    EXPECT_EQ(ParseLoudness(wrong), std::nullopt) << wrong;
  }
}

}  // namespace
}  // namespace qtts
