// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/bf16_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "random_tensors.h"

// BF16 products against sums in double precision of the same BF16 numbers.
namespace qtts::cpu {
namespace {

class BF16KernelsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasBF16Products()) GTEST_SKIP() << "this processor has no BF16 products";
  }

  static double Value(uint16_t bits) {
    return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
  }
  static std::vector<uint16_t> Rounded(const std::vector<float>& x) {
    std::vector<uint16_t> y(x.size());
    ToBF16(x.data(), static_cast<int64_t>(x.size()), y.data());
    return y;
  }

  RandomTensors random_{7070};
};

TEST_F(BF16KernelsTest, RoundsToTheNearest) {
  for (const int64_t n : {1, 2, 15, 16, 17, 31, 32, 33, 100}) {
    const std::vector<float> x = random_.Floats(n, 100);
    const std::vector<uint16_t> y = Rounded(x);
    for (size_t i = 0; i < x.size(); ++i) {
      const auto bits = std::bit_cast<uint32_t>(x[i]);
      EXPECT_EQ(y[i], static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16));
    }
  }
  const std::vector<uint16_t> y = Rounded({std::numeric_limits<float>::quiet_NaN()});
  EXPECT_TRUE(std::isnan(Value(y[0])));
}

TEST_F(BF16KernelsTest, ProductsAreNearTheExactOnes) {
  for (const int64_t cols : {1, 7, 31, 32, 33, 64, 100, 1024}) {
    const int64_t rows = random_.Integer(1, 40);
    const int64_t m = random_.Integer(1, 9);
    const std::vector<uint16_t> w = Rounded(random_.Floats(rows * cols));
    const std::vector<uint16_t> x = Rounded(random_.Floats(m * cols));
    const std::vector<float> bias = random_.Floats(rows);
    const bool with_bias = random_.Integer(0, 1) == 1;
    std::vector<float> y(static_cast<size_t>(m * rows));
    BF16MatMul(w.data(), rows, cols, with_bias ? bias.data() : nullptr, x.data(), m, 0, rows, y.data());
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t r = 0; r < rows; ++r) {
        double sum = with_bias ? static_cast<double>(bias[static_cast<size_t>(r)]) : 0;
        double magnitude = std::fabs(sum) + 1e-30;
        for (int64_t c = 0; c < cols; ++c) {
          const double product =
              Value(w[static_cast<size_t>(r * cols + c)]) * Value(x[static_cast<size_t>(i * cols + c)]);
          sum += product;
          magnitude += std::fabs(product);
        }
        ASSERT_NEAR(sum, static_cast<double>(y[static_cast<size_t>(i * rows + r)]), 3e-6 * magnitude)
            << rows << " x " << cols << ", " << random_.Describe();
      }
    }
  }
}

TEST_F(BF16KernelsTest, GroupingOfRowsAndInputsChangesNoBit) {
  const int64_t rows = 45;
  const int64_t cols = 100;
  const int64_t m = 11;
  const std::vector<uint16_t> w = Rounded(random_.Floats(rows * cols));
  const std::vector<uint16_t> x = Rounded(random_.Floats(m * cols));
  std::vector<float> whole(static_cast<size_t>(m * rows));
  BF16MatMul(w.data(), rows, cols, nullptr, x.data(), m, 0, rows, whole.data());
  std::vector<float> parts(whole.size());
  for (int64_t begin = 0; begin < m;) {
    const int64_t count = std::min<int64_t>(random_.Integer(1, 5), m - begin);
    for (int64_t row = 0; row < rows;) {
      const int64_t end = std::min<int64_t>(row + random_.Integer(1, 20), rows);
      BF16MatMul(w.data(), rows, cols, nullptr, x.data() + begin * cols, count, row, end, parts.data() + begin * rows);
      row = end;
    }
    begin += count;
  }
  EXPECT_EQ(0, memcmp(whole.data(), parts.data(), whole.size() * sizeof(float)));
}

}  // namespace
}  // namespace qtts::cpu
