// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/quantized_kernels.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "cpu/device_name.h"
#include "cpu/instructions.h"
#include "cpu/linear.h"
#include "random_tensors.h"

// Products of quantised weights equal a plain reference bit for bit, on every instruction set and unit of 8-bit
// products of this machine, and F32 within the bound of the scales.
namespace qtts::cpu {
namespace {

constexpr CodeBits kBits[] = {CodeBits::k8, CodeBits::k4};
constexpr int64_t kColumns[] = {1, 5, 31, 32, 33, 64, 65, 100, 200, 1024};

float FloatOf(uint16_t bf16) { return std::bit_cast<float>(static_cast<uint32_t>(bf16) << 16); }

// A weight matrix and its quantised form.
struct Packed {
  Packed(const TensorView& w, CodeBits bits) : source(MatrixOf(w)) {
    view.bits = bits;
    view.rows = source.rows;
    view.cols = source.cols;
    codes.assign(static_cast<size_t>(view.panels() * view.panel_codes()), 0xEE);
    scales.assign(static_cast<size_t>(view.panels() * view.panel_scales()), 0xEEEE);
    QuantizeWeights(source, view, 0, view.panels(), codes.data(), scales.data());
    view.codes = codes.data();
    view.scales = scales.data();
  }

  // From the definition of the layout.
  int Code(int64_t row, int64_t column) const {
    const int64_t lane = row % kPanel;
    const uint8_t* const panel = codes.data() + row / kPanel * view.panel_codes();
    if (view.bits == CodeBits::k8) return panel[(column / 4 * kPanel + lane) * 4 + column % 4] - 128;
    const int both = panel[(column / 8 * kPanel + lane) * 4 + column % 4];
    return (column % 8 < 4 ? both % 16 : both / 16) - 8;
  }
  float Scale(int64_t row, int64_t group) const {
    return FloatOf(scales[static_cast<size_t>(row / kPanel * view.panel_scales() + group * kPanel + row % kPanel)]);
  }

  MatrixView source;
  QuantizedView view;
  std::vector<uint8_t> codes;
  std::vector<uint16_t> scales;
};

struct Inputs {
  Inputs(const std::vector<float>& x, int64_t m, CodeBits bits) {
    const auto cols = static_cast<int64_t>(x.size()) / m;
    const int64_t group = GroupColumns(bits);
    const int64_t groups = (cols + group - 1) / group;
    high.assign(static_cast<size_t>(m * groups * group), 99);
    low = high;
    scales.assign(static_cast<size_t>(m * groups), -1);
    sums.assign(static_cast<size_t>(m * groups), -1);
    for (int64_t i = 0; i < m; ++i) {
      const int64_t at = i * groups * group;
      QuantizeRow(x.data() + i * cols, cols, group, high.data() + at, low.data() + at, scales.data() + i * groups,
                  sums.data() + i * groups);
    }
    rows = {group, groups, high.data(), low.data(), scales.data(), sums.data()};
  }

  int Code(size_t at) const { return 256 * high[at] + low[at]; }

  std::vector<int8_t> high, low;
  std::vector<float> scales;
  std::vector<int32_t> sums;
  QuantizedRows rows;
};

struct Instructions {
  int64_t target = 0;
  ByteUnit unit = ByteUnit::kPortable;
};

std::vector<Instructions> InstructionsHere() {
  std::vector<Instructions> all;
  for (const int64_t target : AvailableTargets()) {
    for (const ByteUnit unit : ByteUnitsOf(target)) all.push_back({target, unit});
  }
  return all;
}

class QuantizedKernelsTest : public testing::TestWithParam<Instructions> {
 protected:
  void SetUp() override { SetTargets(GetParam().target); }
  void TearDown() override {
    DisableByteUnits(false);
    SetTargets(0);
  }

  static void SetTargets(int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }

  // True if a multiplication and its addition round once.
  static bool Fused() {
    const std::string name = hwy::TargetName(GetParam().target);
    return name.rfind("AVX", 0) == 0 || name.rfind("NEON", 0) == 0;
  }

  // The definition, for one row of inputs.
  static float Reference(const Packed& w, const Inputs& x, int64_t row, int64_t input, float bias) {
    const int64_t group = x.rows.group;
    float total = 0;
    for (int64_t g = 0; g < x.rows.groups; ++g) {
      int32_t sum = 0;
      for (int64_t c = g * group; c < (g + 1) * group; ++c) {
        sum += w.Code(row, c) * x.Code(static_cast<size_t>(input * x.rows.groups * group + c));
      }
      const float factor = w.Scale(row, g) * x.scales[static_cast<size_t>(input * x.rows.groups + g)];
      if (Fused()) {
        total = std::fma(static_cast<float>(sum), factor, total);
      } else {
        const volatile float product = static_cast<float>(sum) * factor;
        total = total + product;
      }
    }
    return total + bias;
  }

  RandomTensors random_{20261122};
};

TEST_P(QuantizedKernelsTest, TheBestUnitIsChosenAndNamed) {
  EXPECT_EQ(BestTarget(), GetParam().target);
  DisableByteUnits(GetParam().unit == ByteUnit::kPortable);
  EXPECT_EQ(BestByteUnit(), GetParam().unit);
  std::string name = hwy::TargetName(GetParam().target);
  if (GetParam().unit == ByteUnit::kAvxVnni) name = "AVX-VNNI";
  if (GetParam().unit == ByteUnit::kAvx512Vnni) name = "AVX-512 VNNI";
  if (GetParam().unit == ByteUnit::kNeonDot) name = "NEON dot product";
  EXPECT_EQ(DeviceNameOf(Arithmetic::kInt8, 2), "cpu (" + name + ", int8, 2 threads)");
}

// The units that /proc/cpuinfo lists.
TEST(ByteUnitTest, AreThoseThatTheSystemLists) {
  std::ifstream file("/proc/cpuinfo");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto listed = [&](const char* flag) {
    return text.find(std::string(" ") + flag + " ") != std::string::npos ||
           text.find(std::string(" ") + flag + "\n") != std::string::npos;
  };
  // Under an emulator the file may list those of the host.
  if (!listed(HWY_ARCH_X86 ? "sse2" : "asimd"))
    GTEST_SKIP() << "the system does not list this processor's instructions";
  for (const int64_t target : AvailableTargets()) {
    std::vector<ByteUnit> expected = {ByteUnit::kPortable};
    const std::string name = hwy::TargetName(target);
    if (name == "AVX2" && listed("avx_vnni")) expected.push_back(ByteUnit::kAvxVnni);
    if (name.rfind("AVX3", 0) == 0 && listed("avx512_vnni")) expected.push_back(ByteUnit::kAvx512Vnni);
    if (name.rfind("NEON", 0) == 0 && listed("asimddp")) expected.push_back(ByteUnit::kNeonDot);
    EXPECT_EQ(ByteUnitsOf(target), expected) << name;
  }
}

TEST_P(QuantizedKernelsTest, RowsAreQuantisedAsDefined) {
  for (const CodeBits bits : kBits) {
    for (const int64_t cols : kColumns) {
      const std::vector<float> x = random_.Floats(cols, 3);
      const Inputs inputs(x, 1, bits);
      const int64_t group = inputs.rows.group;
      for (int64_t g = 0; g < inputs.rows.groups; ++g) {
        const auto begin = static_cast<size_t>(g * group);
        const size_t end = std::min(x.size(), begin + static_cast<size_t>(group));
        float largest = 0;
        for (size_t c = begin; c < end; ++c) largest = std::max(largest, std::fabs(x[c]));
        EXPECT_EQ(inputs.scales[static_cast<size_t>(g)], largest / 32639.0F);
        const float factor = 32639.0F / largest;
        int32_t sum = 0;
        for (size_t c = begin; c < begin + static_cast<size_t>(group); ++c) {
          const int expected = c < end ? static_cast<int>(std::nearbyint(x[c] * factor)) : 0;
          ASSERT_EQ(inputs.Code(c), expected) << c;
          sum += expected;
        }
        EXPECT_EQ(inputs.sums[static_cast<size_t>(g)], sum);
      }
    }
  }
}

TEST_P(QuantizedKernelsTest, WeightsAreWithinHalfAStep) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int64_t cols : kColumns) {
      const int64_t rows = random_.Integer(1, 40);
      const TensorView w = random_.Tensor({rows, cols}, dtype);
      const std::vector<double> values = Values(w);
      for (const CodeBits bits : kBits) {
        const Packed packed(w, bits);
        const int64_t group = GroupColumns(bits);
        for (int64_t r = 0; r < packed.view.panels() * kPanel; ++r) {
          for (int64_t c = 0; c < packed.view.groups() * group; ++c) {
            const double scale = static_cast<double>(packed.Scale(r, c / group));
            const double value = r < rows && c < cols ? values[static_cast<size_t>(r * cols + c)] : 0;
            const int code = packed.Code(r, c);
            // 4-bit codes are clipped at the ends of their range if that gives the others a finer step.
            const bool cut = bits == CodeBits::k4 && (code == -8 || code == 7);
            ASSERT_LE(std::fabs(value - code * scale), std::fabs(scale) * (cut ? 1.6 : 0.5001))
                << "row " << r << ", column " << c << ", " << random_.Describe();
          }
        }
      }
    }
  }
}

// Packed copies are the same on every machine.
TEST_P(QuantizedKernelsTest, EveryInstructionSetPacksTheSame) {
  if (!Fused()) GTEST_SKIP() << "of two scales that are as good, one without fused multiply-add may take the other";
  const TensorView w = random_.Tensor({80, 1000}, DType::kBF16);
  for (const CodeBits bits : kBits) {
    SetTargets(GetParam().target);
    const Packed packed(w, bits);
    SetTargets(0);
    const Packed best(w, bits);
    EXPECT_EQ(packed.codes, best.codes);
    EXPECT_EQ(packed.scales, best.scales);
  }
}

// The largest weight gets the code -8, whatever its sign, so the error of a group is that of 4 bits.
TEST_P(QuantizedKernelsTest, FourBitsAreUsedWhole) {
  const TensorView w = random_.Tensor({64, 1024}, DType::kF32);
  const std::vector<double> values = Values(w);
  const Packed packed(w, CodeBits::k4);
  double power = 0;
  double noise = 0;
  for (int64_t r = 0; r < 64; ++r) {
    for (int64_t c = 0; c < 1024; ++c) {
      const double value = values[static_cast<size_t>(r * 1024 + c)];
      const double error = value - packed.Code(r, c) * static_cast<double>(packed.Scale(r, c / 32));
      power += value * value;
      noise += error * error;
    }
  }
  // Expected for uniform numbers and 16 steps: 20 log 16 = 24 dB.
  EXPECT_GT(10 * std::log10(power / noise), 22.5);
}

TEST_P(QuantizedKernelsTest, ProductsAreThoseOfTheReferenceToTheBit) {
  for (const CodeBits bits : kBits) {
    for (const int64_t cols : kColumns) {
      const int64_t rows = random_.Integer(1, 40);
      const int64_t m = random_.Integer(1, 19);
      const Packed w(random_.Tensor({rows, cols}, DType::kBF16), bits);
      const Inputs x(random_.Floats(m * cols), m, bits);
      const std::vector<float> bias = random_.Floats(rows);
      const bool with_bias = random_.Integer(0, 1) == 1;
      std::vector<float> y(static_cast<size_t>(m * rows));
      QuantizedMatMul(w.view, with_bias ? bias.data() : nullptr, x.rows, m, 0, w.view.panels(), y.data(),
                      GetParam().unit);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t r = 0; r < rows; ++r) {
          const float expected = Reference(w, x, r, i, with_bias ? bias[static_cast<size_t>(r)] : 0.0F);
          ASSERT_EQ(expected, y[static_cast<size_t>(i * rows + r)])
              << rows << " x " << cols << ", row " << r << ", input " << i << ", " << random_.Describe();
        }
      }
    }
  }
}

// With the largest codes, sums do not overflow.
TEST_P(QuantizedKernelsTest, LargestCodes) {
  for (const CodeBits bits : kBits) {
    for (const float sign : {1.0F, -1.0F}) {
      const std::vector<float> ones(128, sign);
      const TensorView w{DType::kF32, {1, 128}, ones.data()};
      const Packed packed(w, bits);
      const Inputs x(std::vector<float>(128, 1.0F), 1, bits);
      float y = 0;
      QuantizedMatMul(packed.view, nullptr, x.rows, 1, 0, 1, &y, GetParam().unit);
      EXPECT_EQ(y, Reference(packed, x, 0, 0, 0));
      EXPECT_NEAR(y, sign * 128, 128 * (bits == CodeBits::k8 ? 0.01 : 0.08));
    }
  }
}

// Bound of the error: half a step of the weights times the activations, plus the reverse.
TEST_P(QuantizedKernelsTest, NearF32WithinTheStepsOfTheScales) {
  const int64_t rows = 48;
  const int64_t cols = 1024;
  const TensorView tensor = random_.Tensor({rows, cols}, DType::kBF16);
  const std::vector<double> weights = Values(tensor);
  const Packed w(tensor, CodeBits::k8);
  const std::vector<float> x = random_.Floats(cols);
  const Inputs inputs(x, 1, CodeBits::k8);
  std::vector<float> y(static_cast<size_t>(rows));
  QuantizedMatMul(w.view, nullptr, inputs.rows, 1, 0, w.view.panels(), y.data(), GetParam().unit);
  for (int64_t r = 0; r < rows; ++r) {
    double exact = 0;
    double bound = 1e-4;
    for (int64_t c = 0; c < cols; ++c) {
      const double weight = weights[static_cast<size_t>(r * cols + c)];
      const double input = static_cast<double>(x[static_cast<size_t>(c)]);
      const double weight_step = static_cast<double>(w.Scale(r, c / 64)) / 2;
      const double input_step = static_cast<double>(inputs.scales[static_cast<size_t>(c / 64)]) / 2;
      exact += weight * input;
      bound += weight_step * std::fabs(input) + input_step * std::fabs(weight) + weight_step * input_step;
    }
    EXPECT_NEAR(exact, static_cast<double>(y[static_cast<size_t>(r)]), bound);
    // Errors of either sign cancel: far within the bound.
    EXPECT_NEAR(exact, static_cast<double>(y[static_cast<size_t>(r)]), bound / 8);
  }
}

TEST_P(QuantizedKernelsTest, GroupingOfRowsAndInputsChangesNoBit) {
  for (const CodeBits bits : kBits) {
    const int64_t rows = 75;
    const int64_t cols = 200;
    const int64_t m = 21;
    const Packed w(random_.Tensor({rows, cols}, DType::kF16), bits);
    const std::vector<float> x = random_.Floats(m * cols);
    const std::vector<float> bias = random_.Floats(rows);
    const Inputs all(x, m, bits);
    std::vector<float> whole(static_cast<size_t>(m * rows));
    QuantizedMatMul(w.view, bias.data(), all.rows, m, 0, w.view.panels(), whole.data(), GetParam().unit);
    std::vector<float> parts(whole.size());
    for (int64_t begin = 0; begin < m;) {
      const int64_t count = std::min<int64_t>(random_.Integer(1, 9), m - begin);
      const Inputs some({x.begin() + begin * cols, x.begin() + (begin + count) * cols}, count, bits);
      for (int64_t panel = 0; panel < w.view.panels();) {
        const int64_t end = std::min<int64_t>(panel + random_.Integer(1, 3), w.view.panels());
        QuantizedMatMul(w.view, bias.data(), some.rows, count, panel, end, parts.data() + begin * rows,
                        GetParam().unit);
        panel = end;
      }
      begin += count;
    }
    EXPECT_EQ(0, memcmp(whole.data(), parts.data(), whole.size() * sizeof(float)));
  }
}

TEST_P(QuantizedKernelsTest, WhatIsNotFiniteStaysSo) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const CodeBits bits : kBits) {
    for (const float bad : {nan, infinity, -infinity}) {
      std::vector<float> weights(20 * 100, 0.5F);
      weights[3 * 100 + 70] = bad;
      const TensorView tensor{DType::kF32, {20, 100}, weights.data()};
      std::vector<float> x(2 * 100, 0.25F);
      const Packed w(tensor, bits);
      std::vector<float> y(2 * 20);
      QuantizedMatMul(w.view, nullptr, Inputs(x, 2, bits).rows, 2, 0, 2, y.data(), GetParam().unit);
      for (size_t r = 0; r < y.size(); ++r) EXPECT_EQ(std::isnan(y[r]), r % 20 == 3) << r;
      x[100 + 99] = bad;
      QuantizedMatMul(w.view, nullptr, Inputs(x, 2, bits).rows, 2, 0, 2, y.data(), GetParam().unit);
      for (size_t r = 0; r < y.size(); ++r) EXPECT_EQ(std::isnan(y[r]), r >= 20 || r == 3) << r;
    }
  }
}

TEST_P(QuantizedKernelsTest, ZerosAndTheSmallestNumbers) {
  for (const CodeBits bits : kBits) {
    std::vector<float> weights(16 * 64, 0.0F);
    weights[0] = 1e-38F;
    weights[64] = 1.0F;
    const Packed w({DType::kF32, {16, 64}, weights.data()}, bits);
    std::vector<float> x(64, 1e-36F);
    x[0] = 2;
    std::vector<float> y(16);
    QuantizedMatMul(w.view, nullptr, Inputs(x, 1, bits).rows, 1, 0, 1, y.data(), GetParam().unit);
    EXPECT_EQ(y[0], 0);
    EXPECT_NEAR(y[1], 2, 0.02);
    EXPECT_EQ(y[2], 0);
    QuantizedMatMul(w.view, nullptr, Inputs(std::vector<float>(64), 1, bits).rows, 1, 0, 1, y.data(), GetParam().unit);
    for (const float value : y) EXPECT_EQ(value, 0);
  }
}

std::string NameOf(const testing::TestParamInfo<Instructions>& info) {
  std::string name = hwy::TargetName(info.param.target);
  if (info.param.unit == ByteUnit::kPortable) return name;
  return name + (info.param.unit == ByteUnit::kNeonDot ? "WithDotProduct" : "WithVnni");
}

INSTANTIATE_TEST_SUITE_P(Targets, QuantizedKernelsTest, testing::ValuesIn(InstructionsHere()), NameOf);

}  // namespace
}  // namespace qtts::cpu
