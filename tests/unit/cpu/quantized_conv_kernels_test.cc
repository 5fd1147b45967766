// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/quantized_conv_kernels.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "cpu/causal_conv.h"
#include "cpu/instructions.h"
#include "random_tensors.h"

// int8 convolutions equal a plain reference bit for bit, those of BF16 within rounding, on every instruction set of
// this machine; both differ from F32 by the bound of their rounding at most.
namespace qtts::cpu {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class QuantizedConvTest : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { Use(GetParam()); }
  void TearDown() override { Use(0); }

  static void Use(int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }

  // Multiplications of this target: the portable one, and the instruction if the processor has it.
  static std::vector<ProductUnits> Units() { return {ProductUnits(), BestProductUnits()}; }

  static bool HasFma() {
#if HWY_ARCH_X86
    return GetParam() <= HWY_AVX2;
#else
    return true;
#endif
  }
  static float MulAdd(float a, float b, float c) {
    if (HasFma()) return std::fma(a, b, c);
    volatile float product = a * b;  // rounded: volatile prevents fusing
    return product + c;
  }

  RandomTensors random_{20260102};
};

// A convolution packed from values [out][taps][in].
struct Packed {
  Packed(ProductType type, int64_t in, int64_t out, int64_t taps, int64_t dilation, RandomTensors* random)
      : values(random->Floats(out * taps * in)), bias(random->Floats(out)) {
    view = {.type = type, .in = in, .out = out, .taps = taps, .dilation = dilation};
    Pack();
  }

  void Pack() {
    const auto lanes = static_cast<size_t>(view.panels() * kPanel);
    bias.resize(lanes);
    scales.assign(lanes, 0.0F);
    weights.assign(static_cast<size_t>(view.panels() * view.panel_bytes()), std::byte{0});
    for (int64_t o = 0; o < view.out; ++o) {
      PackOutput(view, o, values.data() + o * view.taps * view.in, weights.data(), scales.data());
    }
    view.weights = weights.data();
    view.scales = scales.data();
    view.bias = bias.data();
  }

  int64_t history() const { return (view.taps - 1) * view.dilation; }

  std::vector<std::byte> Prepare(const std::vector<float>& x) const {
    const int64_t rows = static_cast<int64_t>(x.size()) / view.in;
    std::vector<std::byte> prepared(static_cast<size_t>(rows * view.row_bytes()), std::byte{0xEE});
    PrepareRows(view, nullptr, x.data(), rows, prepared.data());
    return prepared;
  }

  // From the definition of the layout.
  int Code(int64_t o, int64_t tap, int64_t c) const {
    const int64_t step = tap * view.steps() + c / 4;
    return static_cast<int>(weights[static_cast<size_t>(o / kPanel * view.panel_bytes() +
                                                        (step * kPanel + o % kPanel) * 4 + c % 4)]) -
           128;
  }
  float Value(int64_t o, int64_t tap, int64_t c) const {
    return values[static_cast<size_t>((o * view.taps + tap) * view.in + c)];
  }

  std::vector<float> values, bias, scales;
  std::vector<std::byte> weights;
  ProductConvView view;
};

struct Row {
  float scale = 0;
  std::vector<int> codes;
};

Row RowOf(const ProductConvView& view, const std::byte* p) {
  Row row;
  memcpy(&row.scale, p, sizeof(row.scale));
  for (int64_t c = 0; c < view.in; ++c) row.codes.push_back(static_cast<int8_t>(p[ProductConvView::kInt8Header + c]));
  return row;
}

float ToBF16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000U);
}

void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(0, memcmp(a.data(), b.data(), a.size() * sizeof(float)));
}

TEST_P(QuantizedConvTest, RowsOfBytes) {
  for (const int64_t in : {1, 3, 4, 7, 16, 17, 31, 33, 64, 100}) {
    const Packed conv(ProductType::kInt8, in, 1, 1, 1, &random_);
    std::vector<float> x = random_.Floats(3 * in);
    for (int64_t c = 0; c < in; ++c) x[static_cast<size_t>(in + c)] = 0;
    x[0] = -5;  // the largest, negative
    const std::vector<std::byte> prepared = conv.Prepare(x);
    for (int64_t t = 0; t < 3; ++t) {
      const Row row = RowOf(conv.view, prepared.data() + t * conv.view.row_bytes());
      const float* const values = x.data() + t * in;
      float largest = 0;
      for (int64_t c = 0; c < in; ++c) largest = std::max(largest, std::fabs(values[c]));
      EXPECT_EQ(row.scale, largest / 127.0F);
      int sum = 0;
      for (int64_t c = 0; c < in; ++c) {
        const float inverse = largest == 0 ? 0 : 127.0F / largest;
        ASSERT_EQ(row.codes[static_cast<size_t>(c)], static_cast<int>(std::nearbyint(values[c] * inverse)));
        sum += row.codes[static_cast<size_t>(c)];
      }
      int32_t offset = 0;
      memcpy(&offset, prepared.data() + t * conv.view.row_bytes() + 4, sizeof(offset));
      EXPECT_EQ(offset, -128 * sum);
    }
  }
}

TEST_P(QuantizedConvTest, RowsOfBF16) {
  std::vector<float> x = random_.Floats(37);
  for (const float special : {0.0F, -0.0F, 1e-42F, 3.4e38F, kInfinity, -kInfinity, 1.00390625F, 1.01171875F}) {
    x.push_back(special);
  }
  x.push_back(kNan);
  x.push_back(std::bit_cast<float>(0x7FFFFFFFU));  // a NaN whose rounding would overflow
  const auto in = static_cast<int64_t>(x.size());
  const Packed conv(ProductType::kBF16, in, 1, 1, 1, &random_);
  const std::vector<std::byte> prepared = conv.Prepare(x);
  for (size_t c = 0; c < x.size(); ++c) {
    uint16_t half = 0;
    memcpy(&half, prepared.data() + 2 * c, sizeof(half));
    const float got = std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
    if (std::isnan(x[c])) {
      EXPECT_TRUE(std::isnan(got)) << c;
    } else {
      EXPECT_EQ(got, ToBF16(x[c])) << c;
    }
  }
}

TEST_P(QuantizedConvTest, BytesEqualTheReference) {
  for (int round = 0; round < 40; ++round) {
    const Packed conv(ProductType::kInt8, random_.Integer(1, 70), random_.Integer(1, 100), random_.Integer(1, 7),
                      random_.Integer(1, 9), &random_);
    const ProductConvView& view = conv.view;
    const int64_t rows = round == 0 ? 300 : random_.Integer(1, 30);
    const std::vector<float> x = random_.Floats((rows + conv.history()) * view.in);
    const std::vector<std::byte> prepared = conv.Prepare(x);
    std::vector<Row> inputs;
    for (int64_t t = 0; t < rows + conv.history(); ++t) {
      inputs.push_back(RowOf(view, prepared.data() + t * view.row_bytes()));
    }
    const std::vector<float> before = random_.Floats(rows * view.out);
    const bool accumulate = random_.Integer(0, 1) == 1;
    std::vector<float> expected = before;
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t o = 0; o < view.out; ++o) {
        float total = 0;
        double exact = static_cast<double>(conv.bias[static_cast<size_t>(o)]);
        double bound = 1e-6;
        for (int64_t tap = 0; tap < view.taps; ++tap) {
          const int64_t from = t + tap * view.dilation;
          const Row& input = inputs[static_cast<size_t>(from)];
          int32_t sum = 0;
          for (int64_t c = 0; c < view.in; ++c) {
            sum += conv.Code(o, tap, c) * input.codes[static_cast<size_t>(c)];
            const auto w = static_cast<double>(conv.Value(o, tap, c));
            const auto value = static_cast<double>(x[static_cast<size_t>(from * view.in + c)]);
            exact += w * value;
            // Half a step of each factor.
            const auto w_step = static_cast<double>(conv.scales[static_cast<size_t>(o)]) * 0.51;
            const auto x_step = static_cast<double>(input.scale) * 0.51;
            bound += std::fabs(w) * x_step + std::fabs(value) * w_step + w_step * x_step;
          }
          total = MulAdd(static_cast<float>(sum), input.scale, total);
        }
        float& y = expected[static_cast<size_t>(t * view.out + o)];
        const float value = MulAdd(total, conv.scales[static_cast<size_t>(o)], conv.bias[static_cast<size_t>(o)]);
        ASSERT_NEAR(static_cast<double>(value), exact, bound);
        y = accumulate ? value + y : value;
      }
    }
    for (const ProductUnits& units : Units()) {
      std::vector<float> y = before;
      ProductConv(view, prepared.data(), rows, 0, view.panels(), accumulate, y.data(), units);
      ExpectSameBits(expected, y);
    }
  }
}

// The largest numbers, for the largest possible sums.
TEST_P(QuantizedConvTest, LargestSumsOfBytes) {
  for (const float sign : {-1.0F, 1.0F}) {
    Packed conv(ProductType::kInt8, kMostInt8Inputs, 16, 1, 1, &random_);
    std::fill(conv.values.begin(), conv.values.end(), sign);
    std::fill(conv.bias.begin(), conv.bias.end(), 0.0F);
    conv.Pack();
    const std::vector<std::byte> prepared = conv.Prepare(std::vector<float>(kMostInt8Inputs, 1.0F));
    for (const ProductUnits& units : Units()) {
      std::vector<float> y(16);
      ProductConv(conv.view, prepared.data(), 1, 0, 1, false, y.data(), units);
      for (const float value : y) EXPECT_NEAR(value, sign * kMostInt8Inputs, 0.01);
    }
  }
}

TEST_P(QuantizedConvTest, BF16WithinRoundings) {
  for (int round = 0; round < 40; ++round) {
    const Packed conv(ProductType::kBF16, random_.Integer(1, 70), random_.Integer(1, 100), random_.Integer(1, 7),
                      random_.Integer(1, 9), &random_);
    const ProductConvView& view = conv.view;
    const int64_t rows = round == 0 ? 300 : random_.Integer(1, 30);
    const std::vector<float> x = random_.Floats((rows + conv.history()) * view.in);
    const std::vector<std::byte> prepared = conv.Prepare(x);
    const std::vector<float> before = random_.Floats(rows * view.out);
    const bool accumulate = random_.Integer(0, 1) == 1;
    for (const ProductUnits& units : Units()) {
      std::vector<float> y = before;
      ProductConv(view, prepared.data(), rows, 0, view.panels(), accumulate, y.data(), units);
      for (int64_t t = 0; t < rows; ++t) {
        for (int64_t o = 0; o < view.out; ++o) {
          const auto i = static_cast<size_t>(t * view.out + o);
          double sum = static_cast<double>(conv.bias[static_cast<size_t>(o)]);
          if (accumulate) sum += static_cast<double>(before[i]);
          double magnitude = std::fabs(sum);
          for (int64_t tap = 0; tap < view.taps; ++tap) {
            for (int64_t c = 0; c < view.in; ++c) {
              const float value = x[static_cast<size_t>((t + tap * view.dilation) * view.in + c)];
              const double product =
                  static_cast<double>(ToBF16(conv.Value(o, tap, c))) * static_cast<double>(ToBF16(value));
              sum += product;
              magnitude += std::fabs(product);
            }
          }
          ASSERT_NEAR(sum, static_cast<double>(y[i]), 1e-5 * magnitude);
        }
      }
    }
  }
}

// Any grouping of rows and panels gives the same bits.
TEST_P(QuantizedConvTest, DoesNotDependOnTheTiling) {
  for (const ProductType type : {ProductType::kInt8, ProductType::kBF16}) {
    const Packed conv(type, 19, 131, 5, 3, &random_);
    const ProductConvView& view = conv.view;
    const int64_t rows = 531;
    const std::vector<std::byte> x = conv.Prepare(random_.Floats((rows + conv.history()) * view.in));
    for (const ProductUnits& units : Units()) {
      std::vector<float> whole(static_cast<size_t>(rows * view.out));
      ProductConv(view, x.data(), rows, 0, view.panels(), false, whole.data(), units);
      std::vector<float> parts(whole.size());
      for (int64_t t = 0; t < rows;) {
        const int64_t count = std::min<int64_t>(random_.Integer(1, 40), rows - t);
        const int64_t cut = random_.Integer(0, static_cast<int>(view.panels()));
        const std::byte* const from = x.data() + t * view.row_bytes();
        ProductConv(view, from, count, cut, view.panels(), false, parts.data() + t * view.out, units);
        ProductConv(view, from, count, 0, cut, false, parts.data() + t * view.out, units);
        t += count;
      }
      ExpectSameBits(whole, parts);
    }
  }
}

TEST_P(QuantizedConvTest, TouchesOnlyItsPanels) {
  const Packed conv(ProductType::kInt8, 8, 90, 3, 1, &random_);
  const std::vector<std::byte> x = conv.Prepare(random_.Floats(12 * 8));
  for (const ProductUnits& units : Units()) {
    std::vector<float> y(10 * 90, 7.0F);
    ProductConv(conv.view, x.data(), 10, 1, 2, false, y.data(), units);
    for (size_t t = 0; t < 10; ++t) {
      for (size_t o = 0; o < 90; ++o) {
        if (o < 16 || o >= 32) {
          EXPECT_EQ(y[t * 90 + o], 7.0F);
        }
      }
    }
  }
}

// A NaN of a damaged model reaches the output.
TEST_P(QuantizedConvTest, NumbersThatAreNotFiniteMakeNan) {
  for (const ProductType type : {ProductType::kInt8, ProductType::kBF16}) {
    for (const float bad : {kNan, kInfinity, -kInfinity}) {
      Packed conv(type, 21, 20, 3, 2, &random_);
      conv.values[static_cast<size_t>((5 * 3 + 1) * 21 + 4)] = bad;  // of output 5
      conv.Pack();
      std::vector<float> x = random_.Floats(14 * 21);
      x[7 * 21 + 20] = bad;  // row 7, which outputs 3, 5 and 7 see
      const std::vector<std::byte> prepared = conv.Prepare(x);
      for (const ProductUnits& units : Units()) {
        std::vector<float> y(10 * 20);
        ProductConv(conv.view, prepared.data(), 10, 0, 2, false, y.data(), units);
        for (int64_t t = 0; t < 10; ++t) {
          for (int64_t o = 0; o < 20; ++o) {
            const bool finite = std::isfinite(y[static_cast<size_t>(t * 20 + o)]);
            EXPECT_EQ(finite, o != 5 && t != 3 && t != 5 && t != 7) << t << ", " << o;
          }
        }
      }
    }
  }
}

TEST_P(QuantizedConvTest, SilenceAndRowsNextToIt) {
  const Packed conv(ProductType::kInt8, 5, 3, 1, 1, &random_);
  std::vector<float> x(10);
  x[5] = 1e-40F;
  const std::vector<std::byte> prepared = conv.Prepare(x);
  std::vector<float> y(6);
  ProductConv(conv.view, prepared.data(), 2, 0, 1, false, y.data(), BestProductUnits());
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(y[i], conv.bias[i % 3]);
}

TEST_P(QuantizedConvTest, FastSnake) {
  for (const int64_t channels : {1, 5, 16, 33, 96}) {
    const int64_t rows = 7;
    std::vector<float> turns = random_.Floats(channels, 3);
    std::vector<float> inverse_b = random_.Floats(channels, 2);
    std::vector<float> x = random_.Floats(rows * channels, 20);
    std::vector<float> y(x.size());
    FastSnake({turns.data(), inverse_b.data()}, x.data(), rows, channels, y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t c = i % static_cast<size_t>(channels);
      const double turn = static_cast<double>(turns[c]) * static_cast<double>(x[i]);
      const double sine = std::sin(std::numbers::pi * (turn - std::nearbyint(turn)));
      const auto b = static_cast<double>(inverse_b[c]);
      const auto value = static_cast<double>(x[i]);
      // The angle is rounded to F32, the polynomial is off by less than 1e-6.
      const double bound = std::fabs(b) * (1e-6 + std::fabs(turn) * 6e-8 * std::numbers::pi) + std::fabs(value) * 2e-7;
      ASSERT_NEAR(static_cast<double>(y[i]), value + b * sine * sine, bound);
    }
  }
  // For any angle.
  const float turns = 3;
  const float inverse_b = 2;
  for (const float x : {1e9F, -1e9F, 1e37F}) {
    float y = 0;
    FastSnake({&turns, &inverse_b}, &x, 1, 1, &y);
    EXPECT_GE(y, x);
    EXPECT_LE(y, x + std::fabs(x) * 1e-6F + 2.001F);
  }
  for (const float x : {kNan, kInfinity, -kInfinity}) {
    float y = 0;
    FastSnake({&turns, &inverse_b}, &x, 1, 1, &y);
    EXPECT_TRUE(std::isnan(y));
  }
}

TEST_P(QuantizedConvTest, PreparingTakesSnakeAlong) {
  for (const ProductType type : {ProductType::kInt8, ProductType::kBF16}) {
    const Packed conv(type, 37, 1, 1, 1, &random_);
    const std::vector<float> turns = random_.Floats(37);
    const std::vector<float> inverse_b = random_.Floats(37);
    const SnakeView snake{turns.data(), inverse_b.data()};
    const std::vector<float> x = random_.Floats(4 * 37);
    std::vector<float> y(x.size());
    FastSnake(snake, x.data(), 4, 37, y.data());
    const std::vector<std::byte> expected = conv.Prepare(y);
    std::vector<std::byte> got(expected.size(), std::byte{0xEE});
    PrepareRows(conv.view, &snake, x.data(), 4, got.data());
    EXPECT_EQ(expected, got);
  }
}

TEST_P(QuantizedConvTest, NarrowsToHalf) {
  if (!HasHalfLoads()) GTEST_SKIP() << "nothing is narrowed here";
  std::vector<float> x = random_.Floats(45);
  for (const float special : {65504.0F, -65504.0F, 0.0F, 1e-7F, kInfinity, kNan}) x.push_back(special);
  std::vector<uint16_t> halves(x.size());
  EXPECT_TRUE(NarrowToHalf(x.data(), static_cast<int64_t>(x.size()), halves.data()));
  std::vector<float> back(x.size());
  ToFloat(DType::kF16, halves.data(), static_cast<int64_t>(x.size()), back.data());
  for (size_t i = 0; i + 2 < x.size(); ++i) EXPECT_NEAR(x[i], back[i], std::fabs(x[i]) / 2048 + 3e-8F);
  EXPECT_EQ(back[x.size() - 2], kInfinity);
  EXPECT_TRUE(std::isnan(back.back()));
  for (const size_t at : {size_t{0}, size_t{16}, x.size() - 1}) {
    std::vector<float> large = x;
    large[at] = -65600;
    EXPECT_FALSE(NarrowToHalf(large.data(), static_cast<int64_t>(large.size()), halves.data()));
  }
}

// Weights of all dtypes, transposed too, packed by several threads: as F32 within the bound of a step.
TEST_P(QuantizedConvTest, CausalConvOfProducts) {
  ThreadPool pool(2);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const CausalConv::Form form : {CausalConv::Form::kHalf, CausalConv::Form::kBF16, CausalConv::Form::kInt8}) {
      for (const bool transposed : {false, true}) {
        ConvWeights weights;
        weights.weight = random_.Tensor({20, 50, 6}, dtype);
        weights.bias = random_.Tensor({transposed ? 50 : 20}, dtype);
        const auto make = [&](CausalConv::Form wanted) {
          return transposed ? CausalConv::Transposed(weights, 3, pool, wanted)
                            : CausalConv::Plain(weights, 2, pool, wanted);
        };
        const CausalConv exact = make(CausalConv::Form::kStored);
        const CausalConv conv = make(form);
        for (const int64_t rows : {9, 300}) {
          const std::vector<float> x = random_.Floats((rows + conv.history()) * conv.in());
          std::vector<std::byte> prepared(static_cast<size_t>((rows + conv.history()) * conv.row_bytes()));
          conv.Prepare(nullptr, x.data(), rows + conv.history(), prepared.data());
          std::vector<float> expected(static_cast<size_t>(rows * conv.out()));
          std::vector<float> y(expected.size());
          std::vector<float> alone(expected.size());
          exact.Run(pool, x.data(), rows, false, expected.data());
          conv.Run(pool, prepared.data(), rows, false, y.data());
          conv.Run(prepared.data(), rows, false, alone.data());
          ExpectSameBits(y, alone);
          double signal = 0;
          double error = 0;
          for (size_t i = 0; i < y.size(); ++i) {
            signal += std::pow(static_cast<double>(expected[i]), 2);
            error += std::pow(static_cast<double>(y[i]) - static_cast<double>(expected[i]), 2);
          }
          EXPECT_GT(signal, 1e3 * error);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, QuantizedConvTest, testing::ValuesIn(AvailableTargets()),
                         [](const auto& target) { return std::string(hwy::TargetName(target.param)); });

}  // namespace
}  // namespace qtts::cpu
