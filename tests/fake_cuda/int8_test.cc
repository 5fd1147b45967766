// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gemm/int8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "gemm/gemm.h"
#include "gpu/int8_values.h"

namespace qtts {
namespace {

using namespace cuda::gemm;  // NOLINT(google-build-using-namespace): the header under test

// Scales with all patterns of the mantissa, at magnitudes of weights, at the smallest and at the largest.
std::vector<uint16_t> Scales() {
  std::vector<uint16_t> scales = {0x0001, 0x007F};
  for (const uint16_t exponent : {1, 33, 34, 110, 118, 126, 127, 140, 153, 247}) {
    for (uint16_t mantissa = 0; mantissa < 128; ++mantissa) {
      scales.push_back(static_cast<uint16_t>(exponent << 7 | mantissa));
    }
  }
  return scales;
}

// The BF16 number nearest to `x`, of two equally near the even one, by comparison with its neighbours.
bool IsNearestBf16(uint16_t bits, double x) {
  const double value = FloatOfBf16(bits);
  const double distance = std::fabs(value - x);
  for (const int step : {-1, 1}) {
    const auto neighbour = static_cast<uint16_t>(bits + step);
    if ((neighbour & 0x7FFF) > 0x7F80 || ((bits & 0x7FFF) == 0 && step < 0)) continue;
    const double other = std::fabs(static_cast<double>(FloatOfBf16(neighbour)) - x);
    if (other < distance || (other == distance && bits % 2 == 1)) return false;
  }
  return true;
}

TEST(Int8, AValueIsTheProductRoundedOnce) {
  for (const uint16_t scale : Scales()) {
    for (int code = -kMaxInt8Code; code <= kMaxInt8Code; ++code) {
      const double product = static_cast<double>(code) * FloatOfBf16(scale);
      const uint16_t value = Int8Value(code, scale);
      ASSERT_TRUE(IsNearestBf16(value, product)) << code << " * " << scale;
      ASSERT_EQ(Int8Value(-code, scale), code == 0 ? value : value ^ 0x8000) << "symmetric";
    }
  }
}

// The kernels' instructions for a word, with exact arithmetic in place of the FMA.
TEST(Int8, TheKernelsInstructionsGiveTheValue) {
  std::mt19937 random(1);
  for (const uint16_t scale : Scales()) {
    int codes[8];
    for (int& code : codes) code = static_cast<int>(random() % 255) - kMaxInt8Code;
    codes[random() % 8] = 0;
    const Int8Unit unit = PackInt8(codes);
    const double exact_scale = FloatOfBf16(scale);
    for (int i = 0; i < 8; ++i) {
      uint32_t word = unit.words[i / 4];
      if (i % 4 >= 2) word = (word & 0x00FF00FFU) << 8 | (word >> 8 & 0x00FF00FFU);
      const uint32_t moved = (word & 0x007F007FU) | 0x43004300U;
      const auto half = static_cast<uint16_t>(moved >> (i % 2 * 16));
      const double magnitude = FloatOfBf16(half) * exact_scale - 128 * exact_scale;
      const bool negative = (word >> (i % 2 * 16) & 0x8000U) != 0;
      ASSERT_EQ(magnitude, std::abs(codes[i]) * exact_scale);
      ASSERT_EQ(negative, codes[i] < 0);
      ASSERT_TRUE(std::isfinite(static_cast<float>(128 * exact_scale))) << scale;
    }
  }
}

// The same for reduced values, which are BF16(code * 2^-133 * reduced scale).
TEST(Int8, TheReducedValueIsTheValueTimesAPowerOfTwo) {
  const uint16_t least = Int8Scale(1.00001e-26F);
  const uint16_t largest = Int8Scale(std::numeric_limits<float>::max());
  for (const uint16_t scale : Scales()) {
    if (scale < least || scale > largest) continue;
    const float reduced_scale = FloatOfBf16(scale) * FloatOfBf16(kInt8ReducedFactor);
    ASSERT_TRUE(std::isfinite(reduced_scale)) << scale;
    for (int code = -kMaxInt8Code; code <= kMaxInt8Code; ++code) {
      const auto bits = static_cast<uint16_t>(std::abs(code) | (code < 0 ? 0x8000 : 0));
      ASSERT_EQ(FloatOfBf16(bits), std::ldexp(static_cast<float>(code), -133));
      const double product = static_cast<double>(FloatOfBf16(bits)) * reduced_scale;
      const float reduced = FloatOfBf16(Bf16OfFloat(static_cast<float>(product)));
      ASSERT_EQ(reduced * kInt8SumFactor, FloatOfBf16(Int8Value(code, scale))) << code << " * " << scale;
      ASSERT_TRUE(code == 0 || std::isnormal(reduced)) << code << " * " << scale;
    }
  }
  static_assert(kInt8SumFactor == float{1ULL << kInt8ReducedExponent});
}

TEST(Int8, AScaleIsTheSmallestThatKeepsCodesWithin127) {
  std::mt19937 random(2);
  std::uniform_real_distribution<float> exponent(-60, 33);
  for (int i = 0; i < 10000; ++i) {
    const float largest = std::exp2(exponent(random));
    const uint16_t scale = Int8Scale(largest);
    EXPECT_LE(largest / FloatOfBf16(scale), 127.0F);
    EXPECT_GT(largest / 127.0F, FloatOfBf16(static_cast<uint16_t>(scale - 1))) << "the next smaller one is too small";
    EXPECT_EQ(std::abs(Int8Code(-largest, scale)), std::lround(largest / FloatOfBf16(scale)));
  }
}

TEST(Int8, ACodeIsTheNearest) {
  constexpr uint16_t kScale = 0x3C23;
  const double scale = FloatOfBf16(kScale);
  std::mt19937 random(3);
  std::uniform_real_distribution<float> uniform(-127, 127);
  for (int i = 0; i < 10000; ++i) {
    const auto weight = static_cast<float>(static_cast<double>(uniform(random)) * scale);
    EXPECT_LE(std::fabs(Int8Code(weight, kScale) - static_cast<double>(weight) / scale), 0.5000001);
  }
  constexpr uint16_t kOne = 0x3F80;
  EXPECT_EQ(Int8Code(2.5F, kOne), 2) << "to even";
  EXPECT_EQ(Int8Code(-3.5F, kOne), -4) << "to even";
  EXPECT_EQ(Int8Code(1e30F, kOne), 127);
  EXPECT_EQ(Int8Code(-1e30F, kOne), -127);
}

TEST(Int8, GroupsWithoutNumbers) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Int8Scale(0), 0);
  EXPECT_EQ(Int8Scale(1e-27F), 0);
  EXPECT_EQ(Int8Code(1e-27F, 0), 0);
  for (const float bad : {kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    const uint16_t scale = Int8Scale(bad);
    EXPECT_TRUE(std::isnan(FloatOfBf16(scale)));
    EXPECT_EQ(Int8Code(1, scale), 0);
    EXPECT_TRUE(std::isnan(FloatOfBf16(Int8Value(0, scale))));
  }
  const uint16_t largest = Int8Scale(std::numeric_limits<float>::max());
  EXPECT_TRUE(std::isfinite(FloatOfBf16(largest) * FloatOfBf16(kInt8ReducedFactor)));
  EXPECT_EQ(Int8Code(std::numeric_limits<float>::max(), largest), 127);
}

// Every byte of a matrix belongs to one unit or one scale, whose alignment the kernels' loads need.
TEST(Int8, TheLayoutFillsTheMatrix) {
  for (const Int8Layout& layout : {Int8Layout{3, 2, 5}, Int8Layout{4, 1, 3}, Int8Layout{1, 2, 1}}) {
    std::vector<int> uses(layout.bytes());
    const int rows = layout.tiles * layout.halves * 8;
    for (int row = 0; row < rows; ++row) {
      for (int chunk = 0; chunk < layout.chunks; ++chunk) {
        const int column = chunk * cuda::kChunk;
        for (int k = 0; k < cuda::kChunk; k += 8) {
          const int64_t at = layout.UnitAt(row, column + k);
          EXPECT_EQ(at % Int8Layout::kUnitBytes, 0);
          for (int i = 0; i < Int8Layout::kUnitBytes; ++i) ++uses.at(static_cast<size_t>(at + i));
        }
        const int64_t scale = layout.ScaleAt(row, column);
        EXPECT_EQ(scale % 2, 0);
        for (int i = 0; i < 2; ++i) ++uses.at(static_cast<size_t>(scale + i));
      }
      // A lane's two halves are one load, and so are their scales.
      if (layout.halves == 2 && row % 16 < 8) {
        EXPECT_EQ(layout.UnitAt(row, 8) % 16, 0);
        EXPECT_EQ(layout.UnitAt(row + 8, 8), layout.UnitAt(row, 8) + 8);
        EXPECT_EQ(layout.ScaleAt(row, 8) % 4, 0);
        EXPECT_EQ(layout.ScaleAt(row + 8, 8), layout.ScaleAt(row, 8) + 2);
      }
    }
    EXPECT_EQ(std::set<int>(uses.begin(), uses.end()), std::set<int>{1});
  }
}

TEST(Int8, AMatrixTakes17Of32Bytes) {
  for (const cuda::GemmKind kind : {cuda::GemmKind::kNormStore, cuda::GemmKind::kNormGated, cuda::GemmKind::kAdd}) {
    cuda::Matrix matrix;
    matrix.kind = kind;
    matrix.outputs = 1000;
    matrix.columns = 1000;
    const size_t plain = matrix.bytes(cuda::Precision::kBF16);
    matrix.form = cuda::WeightForm::kInt8;
    EXPECT_EQ(matrix.bytes(cuda::Precision::kBF16) * 32, plain * 17);
    EXPECT_EQ(matrix.plain_bytes(cuda::Precision::kBF16), plain);
  }
}

// The signal-to-noise ratio of normal weights: what doc/exactness.md says.
TEST(Int8, WeightsKeep45Decibels) {
  constexpr int64_t kRows = 64, kColumns = 1024;
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  std::vector<float> weights(kRows * kColumns);
  for (float& w : weights) w = normal(random);
  std::vector<float> values = weights;
  testing::RoundToInt8(kRows, kColumns, values.data());
  double signal = 0, noise = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    signal += std::pow(weights[i], 2);
    noise += std::pow(weights[i] - values[i], 2);
  }
  const double decibels = 10 * std::log10(signal / noise);
  EXPECT_GT(decibels, 44);
  EXPECT_LT(decibels, 46);
}

}  // namespace
}  // namespace qtts
