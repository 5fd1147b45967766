// SPDX-License-Identifier: LGPL-2.1-or-later
// The voice encoders on the GPU: each kernel against a plain reference, the networks against the CPU's, with random
// weights of several structures and recordings of many lengths.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numbers>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/mel_tables.h"
#include "cpu/cpu_voice_encoder.h"
#include "cpu/mel_spectrogram.h"
#include "encoder/codec_encoder.h"
#include "encoder/kernels.h"
#include "encoder/speaker_encoder.h"
#include "encoder/voice_encoder.h"
#include "golden/odd_encoders.h"
#include "gpu/gpu_test.h"
#include "qtts/engine.h"
#include "runtime/device_memory.h"

namespace qtts {
namespace {

using cuda::DeviceMemory;
using cuda::Stream;
using namespace cuda::encoder;  // NOLINT(google-build-using-namespace): under test
using testing::Preset;
using testing::RandomModel;

constexpr double kLeastCosine = 0.99999;
constexpr double kLeastEqualCodes = 0.999;

// An array on the device.
template <typename T>
class Array {
 public:
  explicit Array(const std::vector<T>& values) : size_(values.size()) {
    auto memory = DeviceMemory::Allocate(size_ * sizeof(T));
    EXPECT_TRUE(memory.ok()) << memory.status().message();
    if (!memory.ok()) return;
    memory_ = std::move(*memory);
    EXPECT_EQ(cudaMemcpy(memory_.data(), values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  }
  explicit Array(size_t size) : Array(std::vector<T>(size)) {}

  std::vector<T> Get() const {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    std::vector<T> values(size_);
    EXPECT_EQ(cudaMemcpy(values.data(), memory_.data(), size_ * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }
  T* data() const { return memory_.template as<T>(); }

 private:
  size_t size_;
  DeviceMemory memory_;
};

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  std::vector<float> Floats(int64_t count, double deviation = 1, double center = 0) {
    std::normal_distribution<double> normal(center, deviation);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = static_cast<float>(normal(engine_));
    return values;
  }
  int Below(int n) { return static_cast<int>(engine_() % static_cast<unsigned>(n)); }

  // Similar to a voice: harmonics with varying amplitudes, a pause, and noise.
  std::vector<float> Voice(int64_t samples) {
    std::vector<float> pcm = Floats(samples, 0.01);
    const double pitch = 90 + Below(130);
    for (int64_t i = 0; i < samples; ++i) {
      const double time = static_cast<double>(i) / 24000;
      if (std::fmod(time, 2.1) > 1.8) continue;
      for (int h = 1; h <= 8; ++h) {
        pcm[static_cast<size_t>(i)] += static_cast<float>(0.1 * std::sin(2 * std::numbers::pi * pitch * h * time) *
                                                          (1 + std::sin(7 * time * h + h)) / h);
      }
    }
    return pcm;
  }

 private:
  std::mt19937 engine_;
};

double Largest(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

// Equal within F32 rounding of sums, relative to the largest value.
void ExpectNear(const std::vector<float>& got, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  const double most = tolerance * std::max(Largest(expected), 1e-30);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(static_cast<double>(got[i]), expected[i], most) << "value " << i;
}

double Elu(double x) { return x > 0 ? x : std::expm1(x); }

double Activate(Activation activation, double x) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kTanhOfRelu:
      return std::tanh(std::max(x, 0.0));
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::kGelu:
      return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
    case Activation::kElu:
      return Elu(x);
  }
  return x;
}

struct ConvolutionCase {
  int in, out, taps, step, dilation, before;
  int64_t x_rows, rows;
  Border border;
  Activation activation;
  bool elu_input, addend, bias, residual, scale;
};

// Signals are views of wider ones, whose other channels must not be written.
void TestConvolution(const ConvolutionCase& c, Random* random) {
  SCOPED_TRACE("in " + std::to_string(c.in) + ", out " + std::to_string(c.out) + ", taps " + std::to_string(c.taps) +
               ", step " + std::to_string(c.step) + ", dilation " + std::to_string(c.dilation) + ", rows " +
               std::to_string(c.x_rows) + " to " + std::to_string(c.rows));
  const int64_t x_stride = c.in + 3;
  const int64_t y_stride = c.out + 5;
  constexpr int64_t kFirst = 2;
  const auto x = random->Floats(c.x_rows * x_stride);
  const auto addend = random->Floats(c.x_rows * x_stride);
  const auto weights = random->Floats(int64_t{c.taps} * c.in * c.out, 1 / std::sqrt(double{1} * c.taps * c.in));
  const auto bias = random->Floats(c.out);
  const auto scale = random->Floats(c.out);
  const auto before = random->Floats(c.rows * y_stride);
  const Array<float> x_device(x), addend_device(addend), weights_device(weights), bias_device(bias),
      scale_device(scale), y_device(before);
  Convolution a;
  a.x = {x_device.data() + kFirst, x_stride};
  if (c.addend) a.addend = {addend_device.data() + kFirst, x_stride};
  a.elu_input = c.elu_input;
  a.border = c.border;
  a.x_rows = c.x_rows;
  a.in = c.in;
  a.taps = c.taps;
  a.step = c.step;
  a.dilation = c.dilation;
  a.before = c.before;
  a.weights = weights_device.data();
  if (c.bias) a.bias = bias_device.data();
  a.out = c.out;
  a.rows = c.rows;
  a.y = {y_device.data() + kFirst, y_stride};
  if (c.residual) a.residual = a.y;
  if (c.scale) a.scale = scale_device.data();
  a.activation = c.activation;
  ASSERT_EQ(Convolve(a, nullptr), cudaSuccess);

  std::vector<double> expected(before.begin(), before.end());
  const auto index = [](int64_t i) { return static_cast<size_t>(i); };
  for (int64_t t = 0; t < c.rows; ++t) {
    for (int64_t o = 0; o < c.out; ++o) {
      double sum = c.bias ? static_cast<double>(bias[index(o)]) : 0.0;
      for (int64_t j = 0; j < c.taps; ++j) {
        int64_t at = t * c.step + j * c.dilation - c.before;
        if (at < 0 || at >= c.x_rows) {
          if (c.border == Border::kZeros) continue;
          if (c.border == Border::kRepeat) at = std::clamp<int64_t>(at, 0, c.x_rows - 1);
          if (c.border == Border::kReflect) at = at < 0 ? -at : 2 * (c.x_rows - 1) - at;
        }
        for (int64_t i = 0; i < c.in; ++i) {
          auto v = static_cast<double>(x[index(at * x_stride + kFirst + i)]);
          if (c.addend) v += static_cast<double>(addend[index(at * x_stride + kFirst + i)]);
          if (c.elu_input) v = Elu(v);
          sum += v * static_cast<double>(weights[index((j * c.in + i) * c.out + o)]);
        }
      }
      if (c.scale) sum *= static_cast<double>(scale[index(o)]);
      double& y = expected[index(t * y_stride + kFirst + o)];
      y = Activate(c.activation, c.residual ? y + sum : sum);
    }
  }
  ExpectNear(y_device.Get(), expected, 3e-6);
}

TEST(EncoderKernels, Convolution) {
  QTTS_NEEDS_DEVICE();
  Random random(1);
  const std::vector<ConvolutionCase> cases = {
      // Shapes of the networks, scaled down: first and residual convolutions, strided ones, Res2Net, linear layers.
      {1, 64, 7, 1, 1, 6, 200, 200, Border::kZeros, Activation::kNone, false, false, true, false, false},
      {64, 32, 3, 1, 1, 2, 130, 130, Border::kZeros, Activation::kElu, true, false, true, false, false},
      {32, 64, 1, 1, 1, 0, 130, 130, Border::kZeros, Activation::kElu, false, false, true, true, false},
      {40, 80, 8, 4, 1, 4, 129, 33, Border::kZeros, Activation::kNone, false, false, true, false, false},
      {24, 24, 4, 2, 1, 2, 7, 4, Border::kRepeat, Activation::kNone, false, false, false, false, false},
      {16, 16, 3, 1, 4, 4, 5, 5, Border::kReflect, Activation::kRelu, false, true, true, false, false},
      {100, 70, 1, 1, 1, 0, 65, 65, Border::kZeros, Activation::kGelu, false, false, false, false, false},
      {70, 100, 1, 1, 1, 0, 64, 64, Border::kZeros, Activation::kNone, false, false, false, true, true},
      {300, 128, 1, 1, 1, 0, 1, 1, Border::kReflect, Activation::kSigmoid, false, false, true, false, false},
      {33, 65, 1, 1, 1, 0, 3, 3, Border::kZeros, Activation::kTanhOfRelu, false, false, true, false, false},
      // Starting after the first row, and before it.
      {8, 8, 3, 1, 1, -2, 40, 36, Border::kZeros, Activation::kNone, false, false, true, false, false},
      {1, 1, 1, 1, 1, 0, 1, 1, Border::kZeros, Activation::kNone, false, false, true, false, false},
  };
  for (const ConvolutionCase& c : cases) TestConvolution(c, &random);
  for (int i = 0; i < 40; ++i) {
    ConvolutionCase c{};
    c.in = 1 + random.Below(90);
    c.out = 1 + random.Below(150);
    c.taps = 1 + random.Below(9);
    c.step = 1 + random.Below(4);
    c.dilation = 1 + random.Below(4);
    c.x_rows = 40 + random.Below(200);
    c.before = random.Below(30);
    // Up to the maximum padding at each border.
    const int64_t last = c.x_rows + 30 + c.before - static_cast<int64_t>(c.taps - 1) * c.dilation;
    c.rows = std::max<int64_t>(1, last / c.step);
    c.border = static_cast<Border>(random.Below(3));
    c.activation = static_cast<Activation>(random.Below(6));
    c.elu_input = random.Below(2) == 0;
    c.addend = random.Below(2) == 0;
    c.bias = random.Below(2) == 0;
    c.residual = random.Below(2) == 0;
    c.scale = random.Below(2) == 0;
    TestConvolution(c, &random);
  }
}

TEST(EncoderKernels, Statistics) {
  QTTS_NEEDS_DEVICE();
  Random random(2);
  for (const auto& [rows, channels] : {std::pair{1, 1}, {2, 33}, {31, 64}, {33, 100}, {700, 40}}) {
    for (const bool scored : {false, true}) {
      SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(channels) + " channels");
      const int64_t stride = channels + 4;
      const auto x = random.Floats(rows * stride, 2, 1);
      const auto scores = random.Floats(rows * stride, 3, 100);
      const Array<float> x_device(x), scores_device(scores), means(static_cast<size_t>(channels)),
          deviations(static_cast<size_t>(channels));
      Statistics a;
      a.x = {x_device.data(), stride};
      if (scored) a.scores = {scores_device.data(), stride};
      a.rows = rows;
      a.channels = channels;
      a.means = means.data();
      a.deviations = deviations.data();
      ASSERT_EQ(ComputeStatistics(a, nullptr), cudaSuccess);
      std::vector<double> expected_means;
      std::vector<double> expected_deviations;
      for (int64_t c = 0; c < channels; ++c) {
        const auto at = [&](const std::vector<float>& from, int64_t t) {
          return static_cast<double>(from[static_cast<size_t>(t * stride + c)]);
        };
        double total = 0, mean = 0, variance = 0;
        const auto weight = [&](int64_t t) { return scored ? std::exp(at(scores, t) - 100) : 1.0; };
        for (int64_t t = 0; t < rows; ++t) total += weight(t);
        for (int64_t t = 0; t < rows; ++t) mean += weight(t) / total * at(x, t);
        for (int64_t t = 0; t < rows; ++t) variance += weight(t) / total * (at(x, t) - mean) * (at(x, t) - mean);
        expected_means.push_back(mean);
        expected_deviations.push_back(std::sqrt(std::max(variance, 1e-12)));
      }
      ExpectNear(means.Get(), expected_means, 1e-6);
      ExpectNear(deviations.Get(), expected_deviations, 2e-6);
      // The same for the means alone.
      const Array<float> alone(static_cast<size_t>(channels));
      a.means = alone.data();
      a.deviations = nullptr;
      ASSERT_EQ(ComputeStatistics(a, nullptr), cudaSuccess);
      EXPECT_EQ(alone.Get(), means.Get());
    }
  }
}

TEST(EncoderKernels, Gate) {
  QTTS_NEEDS_DEVICE();
  Random random(3);
  constexpr int64_t kRows = 37;
  constexpr int kChannels = 45;
  constexpr int64_t kStride = kChannels + 2;
  const auto x = random.Floats(kRows * kChannels);
  const auto residual = random.Floats(kRows * kStride);
  const auto gates = random.Floats(kChannels);
  const Array<float> x_device(x), residual_device(residual), gates_device(gates), y_device(residual);
  Gating a;
  a.x = {x_device.data(), kChannels};
  a.residual = {residual_device.data(), kStride};
  a.gates = gates_device.data();
  a.rows = kRows;
  a.channels = kChannels;
  a.y = {y_device.data(), kStride};
  ASSERT_EQ(Gate(a, nullptr), cudaSuccess);
  std::vector<float> expected = residual;
  for (size_t t = 0; t < kRows; ++t) {
    for (size_t c = 0; c < kChannels; ++c) expected[t * kStride + c] += gates[c] * x[t * kChannels + c];
  }
  EXPECT_EQ(y_device.Get(), expected);
}

TEST(EncoderKernels, LayerNorm) {
  QTTS_NEEDS_DEVICE();
  Random random(4);
  for (const int channels : {1, 22, 128, 512, 700}) {
    SCOPED_TRACE(std::to_string(channels) + " channels");
    constexpr int64_t kRows = 9;
    const auto x = random.Floats(kRows * channels, 2, 3);
    const auto weight = random.Floats(channels, 0.2, 1);
    const auto bias = random.Floats(channels, 0.2);
    const Array<float> x_device(x), weight_device(weight), bias_device(bias), y_device(x.size());
    LayerNorm a;
    a.x = {x_device.data(), channels};
    a.weight = weight_device.data();
    a.bias = bias_device.data();
    a.eps = 1e-5F;
    a.rows = kRows;
    a.channels = channels;
    a.y = {y_device.data(), channels};
    ASSERT_EQ(Normalize(a, nullptr), cudaSuccess);
    std::vector<double> expected;
    for (size_t t = 0; t < kRows; ++t) {
      const auto width = static_cast<size_t>(channels);
      double mean = 0, variance = 0;
      for (size_t c = 0; c < width; ++c) mean += static_cast<double>(x[t * width + c]) / channels;
      for (size_t c = 0; c < width; ++c) {
        variance += std::pow(static_cast<double>(x[t * width + c]) - mean, 2) / channels;
      }
      for (size_t c = 0; c < width; ++c) {
        expected.push_back((static_cast<double>(x[t * width + c]) - mean) / std::sqrt(variance + 1e-5) *
                               static_cast<double>(weight[c]) +
                           static_cast<double>(bias[c]));
      }
    }
    ExpectNear(y_device.Get(), expected, 2e-6);
  }
}

TEST(EncoderKernels, Attention) {
  QTTS_NEEDS_DEVICE();
  Random random(5);
  struct Shape {
    int64_t rows;
    int heads, head_dim;
  };
  for (const auto& [rows, heads, head_dim] : {Shape{1, 1, 2}, {17, 2, 10}, {70, 3, 64}, {300, 1, 6}, {40, 1, 200}}) {
    SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(heads) + " heads of " + std::to_string(head_dim));
    const int64_t width = int64_t{heads} * head_dim;
    const auto half = static_cast<size_t>(head_dim / 2);
    const auto dim = static_cast<size_t>(head_dim);
    const auto qkv = random.Floats(rows * 3 * width);
    std::vector<float> speeds;
    for (size_t i = 0; i < half; ++i) {
      speeds.push_back(1.0F / std::pow(10000.0F, static_cast<float>(2 * i) / static_cast<float>(head_dim)));
    }
    const Array<float> qkv_device(qkv), speeds_device(speeds), y_device(static_cast<size_t>(rows * width));
    Attention a;
    a.qkv = {qkv_device.data(), 3 * width};
    a.rows = rows;
    a.heads = heads;
    a.head_dim = head_dim;
    a.speeds = speeds_device.data();
    a.y = {y_device.data(), width};
    ASSERT_EQ(Rotate(a, nullptr), cudaSuccess);
    ASSERT_EQ(Attend(a, nullptr), cudaSuccess);

    // Part 0: queries, 1: keys, 2: values.
    const auto row = [&](int64_t t, int part, int head) {
      const auto begin = static_cast<size_t>(t * 3 * width + part * width + head * head_dim);
      std::vector<double> v(qkv.begin() + static_cast<ptrdiff_t>(begin),
                            qkv.begin() + static_cast<ptrdiff_t>(begin + dim));
      for (size_t i = 0; part < 2 && i < half; ++i) {
        // The angle is F32, as on the CPU.
        const auto angle = static_cast<double>(static_cast<float>(t) * speeds[i]);
        const double x = v[i], y = v[i + half];
        v[i] = x * std::cos(angle) - y * std::sin(angle);
        v[i + half] = y * std::cos(angle) + x * std::sin(angle);
      }
      return v;
    };
    std::vector<double> expected(static_cast<size_t>(rows * width));
    for (int h = 0; h < heads; ++h) {
      std::vector<std::vector<double>> keys, values;
      for (int64_t t = 0; t < rows; ++t) {
        keys.push_back(row(t, 1, h));
        values.push_back(row(t, 2, h));
        const std::vector<double> q = row(t, 0, h);
        std::vector<double> weights;
        double sum = 0;
        for (const auto& key : keys) {
          double product = 0;
          for (size_t d = 0; d < dim; ++d) product += q[d] * key[d];
          weights.push_back(std::exp(product / std::sqrt(head_dim)));
          sum += weights.back();
        }
        for (size_t s = 0; s < weights.size(); ++s) {
          for (size_t d = 0; d < dim; ++d) {
            expected[static_cast<size_t>(t * width + h * head_dim) + d] += weights[s] / sum * values[s][d];
          }
        }
      }
    }
    ExpectNear(y_device.Get(), expected, 3e-6);
  }
  // The request must fit.
  EXPECT_GT(MaxAttentionRows(64), 60 * 25 + 13);
}

TEST(EncoderKernels, Quantization) {
  QTTS_NEEDS_DEVICE();
  Random random(6);
  struct Shape {
    int64_t frames;
    int groups, dim, entries;
  };
  for (const auto& [frames, groups, dim, entries] :
       {Shape{1, 1, 1, 1}, {5, 3, 7, 40}, {9, 4, 64, 1500}, {3, 2, 256, 2048}, {2, 2, 100, 3000}}) {
    SCOPED_TRACE(std::to_string(groups) + " groups of " + std::to_string(entries) + " codewords of " +
                 std::to_string(dim));
    const auto width = static_cast<size_t>(dim);
    const auto count = static_cast<size_t>(entries);
    // Sums and counts as trained; the second half of each codebook repeats the first, so that all are ties.
    std::vector<float> codewords(static_cast<size_t>(groups) * width * count);
    std::vector<float> squares(static_cast<size_t>(groups) * count);
    std::vector<std::vector<double>> plain;  // [group * entries + entry]
    const Array<float> codewords_device(codewords.size()), squares_device(squares.size());
    for (int g = 0; g < groups; ++g) {
      std::vector<float> sums = random.Floats(int64_t{entries} * dim, 2);
      std::vector<float> usage = random.Floats(entries, 0.2, 2);
      usage[0] = 0;  // never used: nothing can be near it
      for (size_t e = (count + 1) / 2; e < count; ++e) {
        const size_t from = e - (count + 1) / 2;
        usage[e] = usage[from];
        std::copy_n(sums.begin() + static_cast<ptrdiff_t>(from * width), width,
                    sums.begin() + static_cast<ptrdiff_t>(e * width));
      }
      const Array<float> sums_device(sums), usage_device(usage);
      CodebookPacking packing;
      packing.sums = sums_device.data();
      packing.usage = usage_device.data();
      packing.entries = entries;
      packing.dim = dim;
      packing.codewords = codewords_device.data() + int64_t{g} * dim * entries;
      packing.squares = squares_device.data() + int64_t{g} * entries;
      ASSERT_EQ(PackCodebook(packing, nullptr), cudaSuccess);
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      for (size_t e = 0; e < count; ++e) {
        std::vector<double>& codeword = plain.emplace_back();
        for (size_t i = 0; i < width; ++i) {
          codeword.push_back(static_cast<double>(sums[e * width + i] / std::max(usage[e], 1e-5F)));
        }
      }
    }
    codewords = codewords_device.Get();
    squares = squares_device.Get();
    for (size_t w = 0; w < plain.size(); ++w) {
      const size_t g = w / count;
      double square = 0;
      for (size_t i = 0; i < width; ++i) {
        ASSERT_EQ(static_cast<double>(codewords[(g * width + i) * count + w % count]), plain[w][i]);
        square += plain[w][i] * plain[w][i];
      }
      ASSERT_EQ(squares[w], static_cast<float>(square));
    }
    const auto semantic = random.Floats(frames * dim);
    const auto acoustic = random.Floats(frames * dim);
    const Array<float> semantic_device(semantic), acoustic_device(acoustic);
    const Array<int32_t> codes_device(static_cast<size_t>(frames * groups));
    Quantization a;
    a.semantic = semantic_device.data();
    a.acoustic = acoustic_device.data();
    a.codewords = codewords_device.data();
    a.squares = squares_device.data();
    a.frames = frames;
    a.groups = groups;
    a.dim = dim;
    a.entries = entries;
    a.codes = codes_device.data();
    ASSERT_EQ(Quantize(a, nullptr), cudaSuccess);
    const std::vector<int32_t> codes = codes_device.Get();
    for (size_t t = 0; t < static_cast<size_t>(frames); ++t) {
      std::vector<double> residual;
      for (size_t g = 0; g < static_cast<size_t>(groups); ++g) {
        if (g < 2) {
          const std::vector<float>& from = g == 0 ? semantic : acoustic;
          residual.assign(from.begin() + static_cast<ptrdiff_t>(t * width),
                          from.begin() + static_cast<ptrdiff_t>((t + 1) * width));
        }
        double best = std::numeric_limits<double>::infinity();
        const auto distance = [&](size_t e) {
          double sum = 0;
          for (size_t i = 0; i < width; ++i) sum += std::pow(residual[i] - plain[g * count + e][i], 2);
          return sum;
        };
        for (size_t e = 0; e < count; ++e) best = std::min(best, distance(e));
        const int32_t code = codes[t * static_cast<size_t>(groups) + g];
        ASSERT_GE(code, 0);
        // The first of the two equals, and as near as any other.
        ASSERT_LT(code, (entries + 1) / 2);
        ASSERT_LE(distance(static_cast<size_t>(code)), best * (1 + 1e-5) + 1e-6) << "frame " << t << ", group " << g;
        for (size_t i = 0; i < width; ++i) residual[i] -= plain[g * count + static_cast<size_t>(code)][i];
      }
    }
  }
}

TEST(EncoderKernels, PackingOfEveryType) {
  QTTS_NEEDS_DEVICE();
  Random random(7);
  constexpr int kOut = 5, kIn = 7, kTaps = 3, kTotal = 11, kFirst = 4;
  const auto values = random.Floats(kOut * kIn * kTaps);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    std::vector<char> bytes(values.size() * DTypeBytes(dtype));
    std::vector<float> rounded = values;
    for (size_t i = 0; i < values.size(); ++i) {
      // Numbers that are exact in BF16 and F16: 5 bits and a small exponent.
      rounded[i] = std::ldexp(std::nearbyint(values[i] * 8), -3);
      const auto bits = std::bit_cast<uint32_t>(rounded[i]);
      if (dtype == DType::kF32) {
        std::memcpy(&bytes[4 * i], &bits, 4);
        continue;
      }
      auto half = static_cast<uint16_t>(bits >> 16);
      if (dtype == DType::kF16) {
        const uint32_t exponent = bits >> 23 & 255U;
        half = exponent == 0
                   ? static_cast<uint16_t>(bits >> 16 & 0x8000U)
                   : static_cast<uint16_t>((bits >> 16 & 0x8000U) | (exponent - 112) << 10 | (bits >> 13 & 1023U));
      }
      std::memcpy(&bytes[2 * i], &half, 2);
    }
    const Array<char> from(bytes);
    const Array<float> to(std::vector<float>(size_t{kTaps} * kIn * kTotal, -1));
    Packing a;
    a.from = from.data();
    a.dtype = dtype;
    a.out = kOut;
    a.in = kIn;
    a.taps = kTaps;
    a.to = to.data();
    a.to_out = kTotal;
    a.first = kFirst;
    ASSERT_EQ(Pack(a, nullptr), cudaSuccess);
    std::vector<float> expected(size_t{kTaps} * kIn * kTotal, -1);
    for (size_t o = 0; o < kOut; ++o) {
      for (size_t c = 0; c < kIn; ++c) {
        for (size_t j = 0; j < kTaps; ++j) {
          expected[(j * kIn + c) * kTotal + kFirst + o] = rounded[(o * kIn + c) * kTaps + j];
        }
      }
    }
    EXPECT_EQ(to.Get(), expected);
  }
}

struct Structure {
  const char* name;
  const char* preset;
  DType dtype;
  DType codec_dtype;
  bool full;  // encoders of the released size
  std::vector<std::pair<const char*, int>> sizes;
};

std::vector<Structure> Structures() {
  return {
      {"Small", "tiny-base-0b6", DType::kBF16, DType::kF32, false, {}},
      {"SmallHalf", "tiny-base-1b7", DType::kF16, DType::kF16, false, {}},
      {"SmallOddSizes", "tiny-base-0b6", DType::kF32, DType::kBF16, false, golden::OddEncoderSizes()},
      {"Full", "tiny-base-0b6", DType::kBF16, DType::kF32, true, {}},
  };
}

golden::RandomCheckpointSpec SpecOf(const Structure& structure) {
  golden::RandomCheckpointSpec spec = Preset(structure.preset);
  spec.seed = 5;
  spec.dtype = structure.dtype;
  spec.codec_dtype = structure.codec_dtype;
  if (structure.full) {
    spec.codec.encoder = golden::EncoderSpec();
    spec.speaker_encoder = golden::SpeakerEncoderSpec();
    spec.codebook_size = 2048;
  }
  for (const auto& [size, value] : structure.sizes) EXPECT_TRUE(golden::SetSize(&spec, size, value).ok());
  return spec;
}

// Both networks of one random checkpoint, on both devices.
class EncoderNets : public ::testing::TestWithParam<Structure> {
 protected:
  void SetUp() override {
    QTTS_NEEDS_DEVICE();
    model_ = std::make_unique<RandomModel>(SpecOf(GetParam()));
    ASSERT_NE(model_->checkpoint(), nullptr);
    gpu_ = cuda::CreateVoiceEncoder(model_->checkpoint(), 0);
    auto cpu = CreateCpuVoiceEncoder(model_->checkpoint(), 0);
    ASSERT_TRUE(cpu.ok()) << cpu.status().message();
    cpu_ = *std::move(cpu);
  }

  void ExpectSameVector(const std::vector<float>& pcm) {
    SCOPED_TRACE(std::to_string(pcm.size()) + " samples");
    const auto expected = cpu_->SpeakerVector(pcm);
    const auto got = gpu_->SpeakerVector(pcm);
    ASSERT_TRUE(expected.ok()) << expected.status().message();
    ASSERT_TRUE(got.ok()) << got.status().message();
    ASSERT_EQ(got->size(), expected->size());
    double product = 0, square = 0, expected_square = 0;
    for (size_t i = 0; i < got->size(); ++i) {
      const auto x = static_cast<double>((*got)[i]);
      const auto y = static_cast<double>((*expected)[i]);
      product += x * y;
      square += x * x;
      expected_square += y * y;
    }
    EXPECT_GE(product / std::sqrt(square * expected_square), kLeastCosine);
    // F32 rounding is far below this bound, and any missing operation is far above it.
    const std::vector<double> reference(expected->begin(), expected->end());
    ExpectNear(*got, reference, 1e-4);
    EXPECT_EQ(*gpu_->SpeakerVector(pcm), *got) << "again";
  }

  // Counts codes; those that differ must be few over all lengths together.
  void CompareCodes(const std::vector<float>& pcm) {
    SCOPED_TRACE(std::to_string(pcm.size()) + " samples");
    const auto expected = cpu_->Codes(pcm);
    const auto got = gpu_->Codes(pcm);
    ASSERT_TRUE(expected.ok()) << expected.status().message();
    ASSERT_TRUE(got.ok()) << got.status().message();
    ASSERT_EQ(got->size(), expected->size());
    for (size_t i = 0; i < got->size(); ++i) differing_ += (*got)[i] == (*expected)[i] ? 0 : 1;
    compared_ += static_cast<int64_t>(got->size());
    EXPECT_EQ(*gpu_->Codes(pcm), *got) << "again";
  }
  void ExpectFewDiffer() const {
    ::testing::Test::RecordProperty("codes_that_differ", static_cast<int>(differing_));
    std::printf("%lld of %lld codes differ\n", static_cast<long long>(differing_), static_cast<long long>(compared_));
    EXPECT_LE(static_cast<double>(differing_), (1 - kLeastEqualCodes) * static_cast<double>(compared_));
  }

  Random random_{17};
  std::unique_ptr<RandomModel> model_;
  std::unique_ptr<VoiceEncoder> gpu_, cpu_;
  int64_t differing_ = 0;
  int64_t compared_ = 0;
};

TEST_P(EncoderNets, SpeakerEqualsTheCpus) {
  // The shortest length, some that are no whole number of frames, one second.
  for (const int64_t samples : {1280, 1281, 5000, 24000, 31337}) ExpectSameVector(random_.Voice(samples));
}

TEST_P(EncoderNets, CodesEqualTheCpus) {
  // One sample; whole frames, one sample more and one less; an odd number of rows for the last stride.
  for (const int64_t samples : {1, 959, 960, 961, 1919, 1920, 1921, 5760, 9599, 24000, 31337}) {
    CompareCodes(random_.Voice(samples));
  }
  ExpectFewDiffer();
}

// Several chunks of the convolutions, of which several end within a frame.
TEST_P(EncoderNets, LongRecordingsEqualTheCpus) {
  for (const int64_t samples : {240000, 720001}) {
    const std::vector<float> pcm = random_.Voice(samples);
    ExpectSameVector(pcm);
    CompareCodes(pcm);
  }
  ExpectFewDiffer();
}

// The longest recording that voice/reference.h accepts, with the padding of cloning; then a short one in the same
// memory.
TEST_P(EncoderNets, TheLongestRecording) {
  const std::vector<float> pcm = random_.Voice(60 * 24000 + 12000);
  ExpectSameVector(pcm);
  CompareCodes(pcm);
  CompareCodes(random_.Voice(24000));
  ExpectFewDiffer();
}

TEST_P(EncoderNets, SilenceAndFullScale) {
  const std::vector<float> silence(48000);
  std::vector<float> loud(48000);
  for (size_t i = 0; i < loud.size(); ++i) loud[i] = i / 50 % 2 == 0 ? 1.0F : -1.0F;
  ExpectSameVector(loud);
  CompareCodes(loud);
  ExpectFewDiffer();
  // Silence makes all frames equal, so one tie would change all codes: only success is checked.
  const auto codes = gpu_->Codes(silence);
  ASSERT_TRUE(codes.ok()) << codes.status().message();
  ExpectSameVector(silence);
}

TEST_P(EncoderNets, TooShortOrTooLong) {
  EXPECT_EQ(gpu_->SpeakerVector(std::vector<float>(1279)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(gpu_->Codes(std::vector<float>(size_t{24000} * 60 * 20)).status().code(), StatusCode::kInvalidArgument);
  // The encoder still works after these errors.
  EXPECT_TRUE(gpu_->SpeakerVector(std::vector<float>(1280)).ok());
  EXPECT_TRUE(gpu_->Codes(std::vector<float>(1)).ok());
}

TEST_P(EncoderNets, SpectrogramIsTheCpus) {
  auto files = model_->checkpoint()->OpenVoiceEncoder();
  ASSERT_TRUE(files.ok());
  const auto stream = Stream::Create();
  ASSERT_TRUE(stream.ok());
  const auto speaker = SpeakerEncoder::Create(files->config.speaker, files->weights.speaker, stream->get());
  ASSERT_TRUE(speaker.ok()) << speaker.status().message();
  cuda::Scratch scratch;
  const cpu::MelSpectrogram spectrogram(files->config.speaker.mel_bins);
  for (const int64_t samples : {int64_t{MelTables::kLeastSamples}, int64_t{24000}, int64_t{30001}}) {
    const std::vector<float> pcm = random_.Voice(samples);
    const std::vector<float> expected = spectrogram.Compute(pcm);
    const auto got = (*speaker)->Mels(pcm, &scratch, stream->get());
    ASSERT_TRUE(got.ok()) << got.status().message();
    ASSERT_EQ(got->size(), expected.size());
    // The same operations except the logarithm: a difference of one rounding at most.
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR((*got)[i], expected[i], 2e-6 * std::max(1.0F, std::fabs(expected[i]))) << "value " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Structures, EncoderNets, ::testing::ValuesIn(Structures()),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(CudaVoiceEncoder, OtherCheckpointsAreRefused) {
  QTTS_NEEDS_DEVICE();
  const RandomModel model(Preset("tiny-custom-0b6"));
  const auto encoder = cuda::CreateVoiceEncoder(model.checkpoint(), 0);
  const Status refused = encoder->SpeakerVector(std::vector<float>(24000)).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("this is a custom_voice checkpoint"), std::string::npos) << refused.message();
  EXPECT_EQ(encoder->Codes(std::vector<float>(24000)).status().code(), StatusCode::kInvalidArgument);
}

// The engine makes voices with the encoders of its device, and speaks with them.
TEST(CudaVoiceEncoder, EnginesMakeTheirVoicesWithIt) {
  QTTS_NEEDS_DEVICE();
  const RandomModel model(SpecOf(Structures().front()));
  ASSERT_NE(model.checkpoint(), nullptr);
  EngineOptions options;
  options.model_path = model.checkpoint()->folder();
  options.device = Device::kCuda;
  options.gpu = 0;
  const auto engine = Engine::Load(options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  Recording recording;
  recording.sample_rate = 24000;
  recording.channels = 1;
  recording.samples = Random(9).Voice(48000);
  const auto voice = (*engine)->CloneVoice(recording, {.reference_text = "What was said."});
  ASSERT_TRUE(voice.ok()) << voice.status().message();

  const auto gpu = cuda::CreateVoiceEncoder(model.checkpoint(), 0);
  const auto cpu = CreateCpuVoiceEncoder(model.checkpoint(), 0);
  ASSERT_TRUE(cpu.ok());
  EXPECT_EQ(voice->x_vector, *gpu->SpeakerVector(recording.samples));
  EXPECT_NE(voice->x_vector, *(*cpu)->SpeakerVector(recording.samples)) << "F32 sums in another order";
  EXPECT_EQ(voice->reference_codes, *gpu->Codes(recording.samples));

  // A concurrent request waits and gets the same voice.
  std::vector<std::vector<int32_t>> codes(4);
  std::vector<std::thread> threads;
  for (std::vector<int32_t>& one : codes) {
    threads.emplace_back([&] {
      const auto same = (*engine)->CloneVoice(recording, {.reference_text = "What was said."});
      if (same.ok()) one = same->reference_codes;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<int32_t>& one : codes) EXPECT_EQ(one, voice->reference_codes);

  Request request;
  request.text = "Good evening.";
  request.settings = (*engine)->info().defaults;
  request.settings.max_new_tokens = 4;
  request.voice = std::make_shared<const ClonedVoice>(*voice);
  const auto stream = (*engine)->Start(request);
  ASSERT_TRUE(stream.ok()) << stream.status().message();
  Frame frame;
  int frames = 0;
  while ((*stream)->Read(&frame) == ReadState::kFrame) ++frames;
  EXPECT_TRUE((*stream)->status().ok()) << (*stream)->status().message();
  EXPECT_GT(frames, 0);
}

}  // namespace
}  // namespace qtts
