// SPDX-License-Identifier: LGPL-2.1-or-later
#include "rules/score_power.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

// The algebra of attention's softmax, on the host: whatever exponent partial results are relative to, the same
// additions give the same bits.
namespace qtts {
namespace {

using cuda::FactorsToJoin;
using cuda::JoinedSum;
using cuda::JoinFactors;
using cuda::kNoExponent;
using cuda::PowerOf;
using cuda::PowerOfTwo;
using cuda::WeightOf;

struct Position {
  float score, value;
};

std::vector<Position> RandomPositions(size_t count, float spread, unsigned seed) {
  std::mt19937 random(seed);  // NOLINT(cert-msc32-c,cert-msc51-cpp)
  std::normal_distribution<float> normal;
  std::vector<Position> positions(count);
  for (Position& p : positions) p = {spread * normal(random), normal(random)};
  return positions;
}

// A partial result: the sums of some positions' weights and weighed values.
struct Partial {
  int exponent = kNoExponent;
  float sum = 0, value = 0;
};

// Sums positions [begin, end) relative to `exponent`, in order.
Partial SumOf(const std::vector<Position>& positions, size_t begin, size_t end, int exponent) {
  Partial partial;
  partial.exponent = exponent;
  for (size_t i = begin; i < std::min(end, positions.size()); ++i) {
    const float weight = WeightOf<false>(positions[i].score, exponent);
    partial.sum += weight;
    partial.value = std::fma(weight, positions[i].value, partial.value);
  }
  return partial;
}

int LargestExponent(const std::vector<Position>& positions, size_t begin, size_t end) {
  int largest = kNoExponent;
  for (size_t i = begin; i < std::min(end, positions.size()); ++i) {
    largest = std::max(largest, cuda::ExponentOf(positions[i].score));
  }
  return largest;
}

Partial Join(const Partial& a, const Partial& b) {
  const JoinFactors factors = FactorsToJoin(a.exponent, b.exponent);
  return {factors.exponent, JoinedSum(a.sum, factors.own, b.sum, factors.other),
          JoinedSum(a.value, factors.own, b.value, factors.other)};
}

constexpr size_t kSplit = 64;

// Split by split, each relative to its own exponent.
Partial BySplits(const std::vector<Position>& positions) {
  Partial all;
  for (size_t begin = 0; begin < positions.size(); begin += kSplit) {
    all = Join(all, SumOf(positions, begin, begin + kSplit, LargestExponent(positions, begin, begin + kSplit)));
  }
  return all;
}

// The same, relative to the largest exponent so far.
Partial InOnePass(const std::vector<Position>& positions) {
  Partial all;
  for (size_t begin = 0; begin < positions.size(); begin += kSplit) {
    const int exponent = std::max(all.exponent, LargestExponent(positions, begin, begin + kSplit));
    const float before = PowerOfTwo(all.exponent - exponent);
    const Partial split = SumOf(positions, begin, begin + kSplit, exponent);
    all = {exponent, std::fma(all.sum, before, split.sum), std::fma(all.value, before, split.value)};
  }
  return all;
}

// The same, relative to the largest exponent of all, found in a pass before.
Partial InTwoPasses(const std::vector<Position>& positions) {
  Partial all;
  all.exponent = LargestExponent(positions, 0, positions.size());
  for (size_t begin = 0; begin < positions.size(); begin += kSplit) {
    const Partial split = SumOf(positions, begin, begin + kSplit, all.exponent);
    all.sum += split.sum;
    all.value += split.value;
  }
  return all;
}

TEST(ScorePower, OnePassAndTwoGiveTheBitsOfSplits) {
  unsigned seed = 0;
  for (const float spread : {0.1F, 1.0F, 5.0F, 12.0F}) {
    for (const size_t count : {1, 63, 64, 65, 200, 1100, 4000}) {
      const std::vector<Position> positions = RandomPositions(count, spread, ++seed);
      const Partial splits = BySplits(positions);
      for (const Partial& other : {InOnePass(positions), InTwoPasses(positions)}) {
        EXPECT_EQ(splits.exponent, other.exponent);
        EXPECT_EQ(std::bit_cast<uint32_t>(splits.sum), std::bit_cast<uint32_t>(other.sum)) << spread << " " << count;
        EXPECT_EQ(std::bit_cast<uint32_t>(splits.value), std::bit_cast<uint32_t>(other.value))
            << spread << " " << count;
      }
    }
  }
}

// As a kernel that goes over to any larger exponent when it likes.
TEST(ScorePower, ALargerExponentChangesNoBit) {
  const std::vector<Position> positions = RandomPositions(64, 3, 77);
  const int exponent = LargestExponent(positions, 0, positions.size());
  const Partial plain = SumOf(positions, 0, positions.size(), exponent);
  for (int more = 1; more <= 40; ++more) {
    const Partial other = SumOf(positions, 0, positions.size(), exponent + more);
    EXPECT_EQ(std::ldexp(other.sum, more), plain.sum) << more;
    EXPECT_EQ(std::ldexp(other.value, more), plain.value) << more;
  }
}

TEST(ScorePower, IsTheSoftmax) {
  for (const float spread : {0.5F, 4.0F, 10.0F}) {
    const std::vector<Position> positions = RandomPositions(777, spread, 5);
    float largest = positions[0].score;
    for (const Position& p : positions) largest = std::max(largest, p.score);
    double sum = 0, value = 0;
    for (const Position& p : positions) {
      const double weight = std::exp(static_cast<double>(p.score) - static_cast<double>(largest));
      sum += weight;
      value += weight * static_cast<double>(p.value);
    }
    const Partial got = InOnePass(positions);
    EXPECT_NEAR(static_cast<double>(got.value / got.sum), value / sum, 2e-6) << spread;
  }
}

TEST(ScorePower, ExactWeightsHaveThePrecisionOfF32) {
  std::mt19937 random(9);  // NOLINT(cert-msc32-c,cert-msc51-cpp)
  std::uniform_real_distribution<float> uniform(-80, 80);
  for (int i = 0; i < 10000; ++i) {
    const float score = uniform(random);
    const int exponent = cuda::ExponentOf(score);
    EXPECT_LE(std::abs(PowerOf<true>(score).fraction), 0.5001F);
    const double weight = static_cast<double>(WeightOf<true>(score, exponent));
    const double expected = std::exp(static_cast<double>(score)) * std::exp2(-exponent);
    ASSERT_NEAR(weight / expected, 1, 2e-7) << score;
    // Without the rest of log2 e the error grows with the score.
    ASSERT_NEAR(static_cast<double>(WeightOf<false>(score, exponent)) / expected, 1, 2e-6) << score;
  }
}

TEST(ScorePower, APartWithoutPositionsCountsAsNothing) {
  const Partial none;
  const Partial some = {3, 1.5F, -2.25F};
  for (const Partial& joined : {Join(none, some), Join(some, none)}) {
    EXPECT_EQ(joined.exponent, 3);
    EXPECT_EQ(joined.sum, 1.5F);
    EXPECT_EQ(joined.value, -2.25F);
  }
  const Partial nothing = Join(none, none);
  EXPECT_EQ(nothing.exponent, kNoExponent);
  EXPECT_EQ(nothing.sum, 0);
  EXPECT_EQ(PowerOfTwo(0), 1);
  EXPECT_EQ(PowerOfTwo(-126), std::ldexp(1.0F, -126));
  EXPECT_EQ(PowerOfTwo(-127), 0);
  EXPECT_EQ(WeightOf<false>(-1000, 0), 0);
  EXPECT_EQ(WeightOf<false>(0, 0), 1);
  EXPECT_GT(WeightOf<false>(-86, 0), 0) << "as small as a weight can be";
}

}  // namespace
}  // namespace qtts
