// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/kernels.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "cpu/device_name.h"
#include "cpu/instructions.h"
#include "cpu/linear.h"
#include "random_tensors.h"

// Every kernel against its formula in double precision, on every instruction set this machine has.
namespace qtts::cpu {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
// One element; lengths below, at and above each vector length; some with tails.
constexpr int64_t kSizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 129, 192, 1000};

class KernelsTest : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam());
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }

  RandomTensors random_{20260101};
};

// Equal within a few roundings of `magnitude`, the sum of the absolute values of the terms.
void ExpectNear(double expected, float got, double magnitude) {
  EXPECT_NEAR(expected, static_cast<double>(got), 3e-6 * magnitude + 1e-36);
}

void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(0, memcmp(a.data(), b.data(), a.size() * sizeof(float)));
}

TEST_P(KernelsTest, TheDeviceNameTellsTheTarget) {
  EXPECT_EQ(BestTarget(), GetParam());
  EXPECT_EQ(DeviceNameOf(Arithmetic::kF32, 1), std::string("cpu (") + hwy::TargetName(GetParam()) + ", 1 thread)");
}

TEST_P(KernelsTest, ToFloatIsExact) {
  for (const DType dtype : kDTypes) {
    for (const int64_t n : kSizes) {
      const TensorView x = random_.Tensor({n}, dtype, 10);
      std::vector<float> y(static_cast<size_t>(n));
      ToFloat(dtype, x.data, n, y.data());
      const std::vector<double> expected = Values(x);
      for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(static_cast<float>(expected[i]), y[i]);
    }
  }
}

TEST_P(KernelsTest, ToFloatKnowsEveryHalfPrecisionNumber) {
  std::vector<uint16_t> all;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7C00) != 0x7C00) all.push_back(static_cast<uint16_t>(bits));  // neither infinity nor NaN
  }
  const TensorView x{DType::kF16, {static_cast<int64_t>(all.size())}, all.data()};
  std::vector<float> y(all.size());
  ToFloat(DType::kF16, all.data(), x.elements(), y.data());
  const std::vector<double> expected = Values(x);
  for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(static_cast<float>(expected[i]), y[i]) << all[i];
}

TEST_P(KernelsTest, MatMul) {
  for (const DType dtype : kDTypes) {
    for (const int64_t cols : kSizes) {
      const int64_t rows = random_.Integer(1, 40);
      const int64_t m = random_.Integer(1, 9);
      const TensorView w = random_.Tensor({rows, cols}, dtype);
      const std::vector<float> x = random_.Floats(m * cols);
      const std::vector<float> bias = random_.Floats(rows);
      const bool with_bias = random_.Integer(0, 1) == 1;
      std::vector<float> y(static_cast<size_t>(m * rows));
      MatMul(MatrixOf(w), with_bias ? bias.data() : nullptr, x.data(), m, 0, rows, y.data());
      const std::vector<double> ws = Values(w);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t r = 0; r < rows; ++r) {
          double sum = with_bias ? static_cast<double>(bias[static_cast<size_t>(r)]) : 0;
          double magnitude = std::fabs(sum);
          for (int64_t c = 0; c < cols; ++c) {
            const double product =
                ws[static_cast<size_t>(r * cols + c)] * static_cast<double>(x[static_cast<size_t>(i * cols + c)]);
            sum += product;
            magnitude += std::fabs(product);
          }
          ExpectNear(sum, y[static_cast<size_t>(i * rows + r)], magnitude);
        }
      }
    }
  }
}

// Any grouping of rows and inputs gives the same bits.
TEST_P(KernelsTest, MatMulDoesNotDependOnTheTiling) {
  for (const DType dtype : kDTypes) {
    for (const int64_t cols : {1, 13, 16, 100, 192}) {
      const int64_t rows = 45;
      const int64_t m = 11;
      const MatrixView w = MatrixOf(random_.Tensor({rows, cols}, dtype));
      const std::vector<float> x = random_.Floats(m * cols);
      const std::vector<float> bias = random_.Floats(rows);
      std::vector<float> whole(static_cast<size_t>(m * rows));
      MatMul(w, bias.data(), x.data(), m, 0, rows, whole.data());
      std::vector<float> parts(whole.size());
      for (int64_t begin = 0; begin < m;) {
        const int64_t count = std::min<int64_t>(random_.Integer(1, 5), m - begin);
        for (int64_t row = 0; row < rows;) {
          const int64_t end = std::min<int64_t>(row + random_.Integer(1, 20), rows);
          MatMul(w, bias.data(), x.data() + begin * cols, count, row, end, parts.data() + begin * rows);
          row = end;
        }
        begin += count;
      }
      ExpectSameBits(whole, parts);
    }
  }
}

// Packs weights [out][taps][in] for ConvView.
std::vector<std::byte> PackConv(const TensorView& w) {
  const int64_t out = w.shape[0];
  const int64_t taps = w.shape[1];
  const int64_t in = w.shape[2];
  const size_t size = DTypeBytes(w.dtype);
  const int64_t panels = (out + kPanel - 1) / kPanel;
  std::vector<std::byte> packed(static_cast<size_t>(panels * taps * in * kPanel) * size);
  for (int64_t o = 0; o < out; ++o) {
    for (int64_t j = 0; j < taps * in; ++j) {
      const auto to = static_cast<size_t>((o / kPanel * taps * in + j) * kPanel + o % kPanel);
      memcpy(packed.data() + to * size,
             static_cast<const char*>(w.data) + static_cast<size_t>(o * taps * in + j) * size, size);
    }
  }
  return packed;
}

struct ConvCase {
  ConvCase(int64_t in, int64_t out, int64_t taps, int64_t dilation, DType dtype, RandomTensors* random)
      : weights(random->Tensor({out, taps, in}, dtype)), packed(PackConv(weights)), bias(random->Floats(out)) {
    bias.resize(static_cast<size_t>((out + kPanel - 1) / kPanel * kPanel));
    view = {dtype, packed.data(), bias.data(), in, out, taps, dilation};
  }
  TensorView weights;
  std::vector<std::byte> packed;
  std::vector<float> bias;
  ConvView view;
};

TEST_P(KernelsTest, Conv) {
  for (int round = 0; round < 40; ++round) {
    const DType dtype = kDTypes[random_.Integer(0, 2)];
    const ConvCase conv(random_.Integer(1, 40), random_.Integer(1, 70), random_.Integer(1, 7), random_.Integer(1, 9),
                        dtype, &random_);
    const int64_t rows = round == 0 ? 600 : random_.Integer(1, 30);
    const ConvView& view = conv.view;
    const std::vector<float> x = random_.Floats((rows + (view.taps - 1) * view.dilation) * view.in);
    const std::vector<float> before = random_.Floats(rows * view.out);
    const bool accumulate = random_.Integer(0, 1) == 1;
    std::vector<float> y = before;
    Conv(view, x.data(), rows, 0, view.panels(), accumulate, y.data());
    const std::vector<double> w = Values(conv.weights);
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t o = 0; o < view.out; ++o) {
        double sum = static_cast<double>(conv.bias[static_cast<size_t>(o)]);
        if (accumulate) sum += static_cast<double>(before[static_cast<size_t>(t * view.out + o)]);
        double magnitude = std::fabs(sum);
        for (int64_t j = 0; j < view.taps; ++j) {
          for (int64_t c = 0; c < view.in; ++c) {
            const double product = w[static_cast<size_t>((o * view.taps + j) * view.in + c)] *
                                   static_cast<double>(x[static_cast<size_t>((t + j * view.dilation) * view.in + c)]);
            sum += product;
            magnitude += std::fabs(product);
          }
        }
        ExpectNear(sum, y[static_cast<size_t>(t * view.out + o)], magnitude);
      }
    }
  }
}

TEST_P(KernelsTest, ConvDoesNotDependOnTheTiling) {
  for (const DType dtype : kDTypes) {
    const ConvCase conv(19, 83, 5, 3, dtype, &random_);
    const ConvView& view = conv.view;
    const int64_t rows = 531;
    const std::vector<float> x = random_.Floats((rows + (view.taps - 1) * view.dilation) * view.in);
    std::vector<float> whole(static_cast<size_t>(rows * view.out));
    Conv(view, x.data(), rows, 0, view.panels(), false, whole.data());
    std::vector<float> parts(whole.size());
    for (int64_t t = 0; t < rows;) {
      const int64_t count = std::min<int64_t>(random_.Integer(1, 40), rows - t);
      const int64_t cut = random_.Integer(0, static_cast<int>(view.panels()));
      Conv(view, x.data() + t * view.in, count, cut, view.panels(), false, parts.data() + t * view.out);
      Conv(view, x.data() + t * view.in, count, 0, cut, false, parts.data() + t * view.out);
      t += count;
    }
    ExpectSameBits(whole, parts);
  }
}

TEST_P(KernelsTest, ConvTouchesOnlyItsPanels) {
  const ConvCase conv(8, 40, 3, 1, DType::kF32, &random_);
  const std::vector<float> x = random_.Floats(12 * 8);
  std::vector<float> y(10 * 40, 7.0F);
  Conv(conv.view, x.data(), 10, 1, 2, false, y.data());
  for (size_t t = 0; t < 10; ++t) {
    for (size_t o = 0; o < 40; ++o) {
      if (o < 16 || o >= 32) {
        EXPECT_EQ(y[t * 40 + o], 7.0F);
      }
    }
  }
}

TEST_P(KernelsTest, DepthwiseConv) {
  for (const int64_t channels : kSizes) {
    const int64_t taps = random_.Integer(1, 7);
    const int64_t rows = random_.Integer(1, 6);
    const std::vector<float> w = random_.Floats(taps * channels);
    const std::vector<float> bias = random_.Floats(channels);
    const std::vector<float> x = random_.Floats((rows + taps - 1) * channels);
    std::vector<float> y(static_cast<size_t>(rows * channels));
    DepthwiseConv(w.data(), bias.data(), x.data(), taps, rows, channels, y.data());
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t c = 0; c < channels; ++c) {
        double sum = static_cast<double>(bias[static_cast<size_t>(c)]);
        for (int64_t j = 0; j < taps; ++j) {
          sum += static_cast<double>(w[static_cast<size_t>(j * channels + c)]) *
                 static_cast<double>(x[static_cast<size_t>((t + j) * channels + c)]);
        }
        ExpectNear(sum, y[static_cast<size_t>(t * channels + c)], static_cast<double>(taps + 1));
      }
    }
  }
}

TEST_P(KernelsTest, RmsNorm) {
  for (const int64_t n : kSizes) {
    std::vector<float> x = random_.Floats(n, 3);
    const std::vector<float> weight = random_.Floats(n);
    double squares = 0;
    for (const float v : x) squares += static_cast<double>(v) * static_cast<double>(v);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-3);
    std::vector<float> y(x.size());
    RmsNorm(x.data(), weight.data(), 1e-3F, n, y.data());
    for (size_t i = 0; i < y.size(); ++i) {
      const double expected = static_cast<double>(x[i]) * scale * static_cast<double>(weight[i]);
      ExpectNear(expected, y[i], std::fabs(expected));
    }
    RmsNorm(x.data(), weight.data(), 1e-3F, n, x.data());
    ExpectSameBits(x, y);
  }
}

TEST_P(KernelsTest, LayerNorm) {
  for (const int64_t n : kSizes) {
    std::vector<float> x = random_.Floats(n, 3, 2);
    const std::vector<float> weight = random_.Floats(n);
    const std::vector<float> bias = random_.Floats(n);
    double mean = 0;
    for (const float v : x) mean += static_cast<double>(v) / static_cast<double>(n);
    double variance = 0;
    for (const float v : x) {
      variance += (static_cast<double>(v) - mean) * (static_cast<double>(v) - mean) / static_cast<double>(n);
    }
    std::vector<float> y(x.size());
    LayerNorm(x.data(), weight.data(), bias.data(), 1e-3F, n, y.data());
    for (size_t i = 0; i < y.size(); ++i) {
      const double scale = 1 / std::sqrt(variance + 1e-3);
      const double expected =
          (static_cast<double>(x[i]) - mean) * scale * static_cast<double>(weight[i]) + static_cast<double>(bias[i]);
      ExpectNear(expected, y[i], 5 * scale + 1);
    }
    LayerNorm(x.data(), weight.data(), bias.data(), 1e-3F, n, x.data());
    ExpectSameBits(x, y);
  }
}

TEST_P(KernelsTest, RotatePairsSplitHalves) {
  for (const int64_t half : kSizes) {
    const std::vector<float> angles = random_.Floats(half, 10);
    std::vector<float> cosines, sines;
    for (const float angle : angles) {
      cosines.push_back(std::cos(angle));
      sines.push_back(std::sin(angle));
    }
    const std::vector<float> x = random_.Floats(2 * half);
    std::vector<float> y = x;
    Rotate(cosines.data(), sines.data(), half, y.data());
    for (size_t i = 0; i < static_cast<size_t>(half); ++i) {
      const double low = static_cast<double>(x[i]);
      const double high = static_cast<double>(x[i + static_cast<size_t>(half)]);
      const auto c = static_cast<double>(cosines[i]);
      const auto s = static_cast<double>(sines[i]);
      ExpectNear(low * c - high * s, y[i], 2);
      ExpectNear(high * c + low * s, y[i + static_cast<size_t>(half)], 2);
    }
  }
}

TEST_P(KernelsTest, Attend) {
  for (const int64_t head_dim : kSizes) {
    const int64_t stride = head_dim + random_.Integer(0, 20);
    std::vector<std::vector<float>> keys, values;
    std::vector<KeyValueSpan> spans;
    const int count = random_.Integer(1, 4);
    for (int i = 0; i < count; ++i) {
      const int64_t positions = random_.Integer(1, 40);
      keys.push_back(random_.Floats(positions * stride));
      values.push_back(random_.Floats(positions * stride));
      spans.push_back({keys.back().data(), values.back().data(), positions});
    }
    const std::vector<float> q = random_.Floats(head_dim, 4);
    const float scale = 0.7F;
    int64_t total = 0;
    std::vector<double> expected(static_cast<size_t>(head_dim));
    double weights = 0;
    for (const KeyValueSpan& span : spans) {
      total += span.count;
      for (int64_t p = 0; p < span.count; ++p) {
        double dot = 0;
        for (int64_t d = 0; d < head_dim; ++d) {
          dot += static_cast<double>(q[static_cast<size_t>(d)]) * static_cast<double>(span.keys[p * stride + d]);
        }
        const double weight = std::exp(static_cast<double>(scale) * dot);
        weights += weight;
        for (int64_t d = 0; d < head_dim; ++d) {
          expected[static_cast<size_t>(d)] += weight * static_cast<double>(span.values[p * stride + d]);
        }
      }
    }
    std::vector<float> scores(static_cast<size_t>(total));
    std::vector<float> y(static_cast<size_t>(head_dim));
    Attend(q.data(), spans, stride, head_dim, scale, scores.data(), y.data());
    // Scores of up to some hundreds lose that many roundings in the exponent.
    for (size_t d = 0; d < y.size(); ++d) {
      EXPECT_NEAR(expected[d] / weights, static_cast<double>(y[d]), 1e-6 * (4 + static_cast<double>(head_dim)));
    }
  }
}

TEST_P(KernelsTest, AttendKeepsWhatIsNoNumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> keys(4 * 16, 0.5F);
  keys[2 * 16 + 3] = nan;
  const std::vector<float> values(4 * 16, 1.0F);
  const std::vector<float> q(16, 1.0F);
  const KeyValueSpan span{keys.data(), values.data(), 4};
  std::vector<float> scores(4), y(16);
  Attend(q.data(), {&span, 1}, 16, 16, 1, scores.data(), y.data());
  for (const float v : y) EXPECT_TRUE(std::isnan(v));
}

TEST_P(KernelsTest, Silu) {
  for (const int64_t n : kSizes) {
    std::vector<float> x = random_.Floats(n, 12);
    x[0] = random_.Integer(0, 1) == 0 ? -200.0F : 200.0F;
    const std::vector<float> up = random_.Floats(n);
    std::vector<float> y(x.size());
    std::vector<float> product(x.size());
    Silu(x.data(), n, y.data());
    SiluMul(x.data(), up.data(), n, product.data());
    for (size_t i = 0; i < y.size(); ++i) {
      const double expected = static_cast<double>(x[i]) / (1 + std::exp(-static_cast<double>(x[i])));
      ExpectNear(expected, y[i], std::fabs(expected));
      ExpectNear(expected * static_cast<double>(up[i]), product[i], std::fabs(expected));
    }
  }
  for (const float extreme : {-3e38F, -1000.0F, -110.0F, -95.0F, 0.0F, 1000.0F, 3e38F}) {
    float y = 1;
    Silu(&extreme, 1, &y);
    EXPECT_EQ(std::max(extreme, 0.0F), y);
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  float y = 0;
  Silu(&nan, 1, &y);
  EXPECT_TRUE(std::isnan(y));
}

TEST_P(KernelsTest, GeluIsTheExactForm) {
  std::vector<float> x = random_.Floats(1000, 6);
  std::vector<float> y(x.size());
  Gelu(x.data(), 1000, y.data());
  for (size_t i = 0; i < y.size(); ++i) {
    const auto v = static_cast<double>(x[i]);
    EXPECT_NEAR(v / 2 * (1 + std::erf(v / std::sqrt(2.0))), static_cast<double>(y[i]), 5e-7 * std::fabs(v) + 1e-9);
  }
}

TEST_P(KernelsTest, Elu) {
  for (const int64_t n : kSizes) {
    std::vector<float> x = random_.Floats(n, 8);
    x[0] = -1e30F;
    std::vector<float> y(x.size());
    Elu(x.data(), n, y.data());
    for (size_t i = 0; i < y.size(); ++i) {
      const auto v = static_cast<double>(x[i]);
      EXPECT_NEAR(v > 0 ? v : std::expm1(v), static_cast<double>(y[i]), 1e-6 * std::min(1.0, std::fabs(v)));
    }
    Elu(x.data(), n, x.data());
    ExpectSameBits(x, y);
  }
}

TEST_P(KernelsTest, SnakeBeta) {
  for (const int64_t channels : kSizes) {
    const int64_t rows = random_.Integer(1, 5);
    const std::vector<float> a = random_.Floats(channels, 3, 3.2);
    const std::vector<float> inverse_b = random_.Floats(channels, 1, 1.1);
    std::vector<float> x = random_.Floats(rows * channels, 20);
    x[0] = 1e6F;  // beyond the range of the vector sine
    std::vector<float> y(x.size());
    SnakeBeta(a.data(), inverse_b.data(), x.data(), rows, channels, y.data());
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t c = 0; c < channels; ++c) {
        const float v = x[static_cast<size_t>(t * channels + c)];
        // The product is rounded to F32 before the sine, as in the reference.
        const double sine = std::sin(static_cast<double>(v * a[static_cast<size_t>(c)]));
        const double expected =
            static_cast<double>(v) + static_cast<double>(inverse_b[static_cast<size_t>(c)]) * sine * sine;
        ExpectNear(expected, y[static_cast<size_t>(t * channels + c)], std::fabs(static_cast<double>(v)) + 1);
      }
    }
    SnakeBeta(a.data(), inverse_b.data(), x.data(), rows, channels, x.data());
    ExpectSameBits(x, y);
  }
}

TEST_P(KernelsTest, AddAndAddScaled) {
  for (const int64_t n : kSizes) {
    const std::vector<float> x = random_.Floats(n);
    const std::vector<float> scale = random_.Floats(n);
    const std::vector<float> before = random_.Floats(n);
    std::vector<float> y = before;
    Add(x.data(), n, y.data());
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], before[i] + x[i]);
    y = before;
    AddScaled(scale.data(), x.data(), n, y.data());
    for (size_t i = 0; i < y.size(); ++i) {
      ExpectNear(static_cast<double>(before[i]) + static_cast<double>(scale[i]) * static_cast<double>(x[i]), y[i], 2);
    }
  }
}

TEST_P(KernelsTest, ClampUnit) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> y = {-2, -1, -0.5F, 0, 0.999F, 1, 1e30F, -std::numeric_limits<float>::infinity(), nan};
  ClampUnit(static_cast<int64_t>(y.size()), y.data());
  const std::vector<float> expected = {-1, -1, -0.5F, 0, 0.999F, 1, 1, -1};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(y[i], expected[i]);
  EXPECT_TRUE(std::isnan(y.back()));
}

INSTANTIATE_TEST_SUITE_P(Targets, KernelsTest, testing::ValuesIn(AvailableTargets()),
                         [](const auto& target) { return std::string(hwy::TargetName(target.param)); });

}  // namespace
}  // namespace qtts::cpu
