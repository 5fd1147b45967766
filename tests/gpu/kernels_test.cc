// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <tuple>

#include "attention/attention.h"
#include "attention/text_scores.h"
#include "cpu/embedder.h"
#include "cpu/predictor.h"
#include "cpu/talker.h"
#include "cpu/thread_pool.h"
#include "gemm/cublas_lt.h"
#include "gemm/gemm.h"
#include "gemm/library.h"
#include "gemm/rows.h"
#include "gemm/swizzled.h"
#include "gemm/tiles.h"
#include "gpu/device.h"
#include "gpu/gpu_test.h"
#include "language_model.h"
#include "runtime/device_memory.h"
#include "sample/sample.h"
#include "sampling/sampler.h"

// The GPU's products and sampling rules against plain ones, and the language model's logits against the
// CPU's, teacher-forced.
namespace qtts {
namespace {

using cuda::DeviceMemory;
using cuda::GemmKind;
using cuda::LanguageModel;
using cuda::Matrix;
using cuda::Padded;
using cuda::PinnedMemory;
using cuda::Precision;
using testing::MidSize;
using testing::Preset;
using testing::RandomModel;
using testing::RandomPrompt;

float RoundBf16(float x) {
  auto bits = std::bit_cast<uint32_t>(x);
  bits += 0x7FFF + (bits >> 16 & 1);
  return std::bit_cast<float>(bits & 0xFFFF0000U);
}

DeviceMemory ToDevice(const void* data, size_t bytes) {
  auto memory = DeviceMemory::Allocate(bytes);
  EXPECT_TRUE(memory.ok());
  EXPECT_EQ(cudaMemcpy(memory->data(), data, bytes, cudaMemcpyHostToDevice), cudaSuccess);
  return std::move(*memory);
}

// F32 values as elements of the precision's type, and back.
std::vector<char> Encode(const std::vector<float>& values, Precision precision) {
  std::vector<char> bytes(values.size() * cuda::ElementBytes(precision));
  for (size_t i = 0; i < values.size(); ++i) {
    if (precision == Precision::kF32) {
      std::memcpy(&bytes[4 * i], &values[i], 4);
    } else {
      const auto bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(RoundBf16(values[i])) >> 16);
      std::memcpy(&bytes[2 * i], &bits, 2);
    }
  }
  return bytes;
}
std::vector<float> Decode(const std::vector<char>& bytes, Precision precision) {
  std::vector<float> values(bytes.size() / cuda::ElementBytes(precision));
  for (size_t i = 0; i < values.size(); ++i) {
    if (precision == Precision::kF32) {
      std::memcpy(&values[i], &bytes[4 * i], 4);
    } else {
      uint16_t bits;
      std::memcpy(&bits, &bytes[2 * i], 2);
      values[i] = std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
    }
  }
  return values;
}

struct GemmCase {
  GemmKind kind;
  Precision precision;
  int outputs, columns;
};

class GemmTest : public ::testing::TestWithParam<GemmCase> {};

// Every kind, at sizes that fill tiles and chunks and at sizes that do not: equal to double precision within the
// rounding of the operands. A row has the same bits for any number of rows.
TEST_P(GemmTest, EqualsPlainProducts) {
  QTTS_NEEDS_DEVICE();
  const GemmCase c = GetParam();
  std::mt19937 random(static_cast<unsigned>(c.outputs * 7919 + c.columns));
  std::uniform_real_distribution<float> uniform(-1, 1);
  const bool normed = c.kind == GemmKind::kNormStore || c.kind == GemmKind::kNormGated;
  const bool gated = c.kind == GemmKind::kNormGated;
  const int width = Padded(c.columns);
  constexpr int kRows = 130;
  const auto weight = [&](size_t n) {
    std::vector<float> w(n);
    for (float& x : w) x = RoundBf16(uniform(random) / std::sqrt(static_cast<float>(c.columns)));
    return w;
  };
  const auto count = static_cast<size_t>(c.outputs) * static_cast<size_t>(c.columns);
  const std::vector<float> w = weight(count);
  const std::vector<float> up = gated ? weight(count) : std::vector<float>();
  std::vector<float> x(static_cast<size_t>(kRows) * static_cast<size_t>(width));
  for (int r = 0; r < kRows; ++r) {
    for (int k = 0; k < c.columns; ++k) x[static_cast<size_t>(r * width + k)] = RoundBf16(3 * uniform(random));
  }
  std::vector<float> norm(static_cast<size_t>(width));
  for (int k = 0; k < c.columns; ++k) norm[static_cast<size_t>(k)] = normed ? 1 + uniform(random) / 2 : 1;
  std::vector<float> bias(static_cast<size_t>(c.outputs));
  for (float& b : bias) b = uniform(random);

  Matrix matrix;
  matrix.kind = c.kind;
  matrix.outputs = c.outputs;
  matrix.columns = c.columns;
  auto packed = DeviceMemory::AllocateZeroed(matrix.bytes(c.precision));
  ASSERT_TRUE(packed.ok());
  matrix.data = packed->data();
  const DeviceMemory device_bias = ToDevice(bias.data(), bias.size() * 4);
  if (!gated) matrix.bias = device_bias.as<const float>();
  const cuda::Launcher launch(nullptr, &cuda::kH200Numbers);
  const DeviceMemory device_w = ToDevice(w.data(), w.size() * 4);
  Pack(launch, c.precision, matrix, gated ? cuda::PackPart::kGate : cuda::PackPart::kWhole, DType::kF32,
       device_w.data(), 0, c.outputs);
  DeviceMemory device_up;
  if (gated) {
    device_up = ToDevice(up.data(), up.size() * 4);
    Pack(launch, c.precision, matrix, cuda::PackPart::kUp, DType::kF32, device_up.data(), 0, c.outputs);
  }
  const std::vector<char> encoded = Encode(x, normed ? Precision::kF32 : c.precision);
  const DeviceMemory device_x = ToDevice(encoded.data(), encoded.size());
  const DeviceMemory device_norm = ToDevice(norm.data(), norm.size() * 4);
  const Precision y_precision =
      c.kind == GemmKind::kNormStore || c.kind == GemmKind::kAdd ? Precision::kF32 : c.precision;
  const int y_stride = c.outputs + 3;
  constexpr float kBefore = 0.25F;

  auto normed_x = DeviceMemory::AllocateZeroed(static_cast<size_t>(kRows * width) * 2);
  auto factors = DeviceMemory::AllocateZeroed(kRows * sizeof(float));
  ASSERT_TRUE(normed_x.ok() && factors.ok());

  const auto run = [&](int first, int rows, cuda::GemmShape shape) {
    const std::vector<char> before =
        Encode(std::vector<float>(static_cast<size_t>(rows * y_stride), kBefore), y_precision);
    const DeviceMemory y = ToDevice(before.data(), before.size());
    cuda::GemmRows r;
    r.x =
        device_x.as<const char>() + static_cast<size_t>(first * width) * (normed ? 4 : cuda::ElementBytes(c.precision));
    r.x_stride = width;
    r.y = y.data();
    r.y_stride = y_stride;
    r.rows = rows;
    r.norm = normed ? device_norm.as<const float>() : nullptr;
    r.eps = 1e-6F;
    r.normed = {normed_x->data(), factors->as<float>()};
    r.shape = shape;
    if (shape != cuda::GemmShape::kBest && !CanRun(shape, matrix, r, launch.numbers->products)) {
      return std::vector<float>();
    }
    Gemm(launch, c.precision, matrix, r);
    EXPECT_EQ(launch.error, cudaSuccess) << cudaGetErrorString(launch.error);
    std::vector<char> after(before.size());
    EXPECT_EQ(cudaMemcpy(after.data(), y.data(), after.size(), cudaMemcpyDeviceToHost), cudaSuccess);
    return Decode(after, y_precision);
  };
  const std::vector<float> all = run(0, kRows, cuda::GemmShape::kBest);
  double error = 0, size = 0;
  for (int r = 0; r < kRows; ++r) {
    double squares = 0;
    for (int k = 0; k < c.columns; ++k) squares += std::pow(x[static_cast<size_t>(r * width + k)], 2);
    const double factor = normed ? 1 / std::sqrt(squares / c.columns + 1e-6) : 1;
    const auto dot = [&](const std::vector<float>& m, int o) {
      double sum = 0;
      for (int k = 0; k < c.columns; ++k) {
        sum +=
            static_cast<double>(m[static_cast<size_t>(o) * static_cast<size_t>(c.columns) + static_cast<size_t>(k)]) *
            x[static_cast<size_t>(r * width + k)] * norm[static_cast<size_t>(k)];
      }
      return sum * factor;
    };
    const auto silu = [](double v) { return v / (1 + std::exp(-v)); };
    for (int o = 0; o < c.outputs; ++o) {
      double expected = dot(w, o);
      if (gated) {
        expected = silu(expected) * dot(up, o);
      } else {
        expected += bias[static_cast<size_t>(o)];
        if (c.kind == GemmKind::kAdd) expected += kBefore;
        if (c.kind == GemmKind::kStoreSilu) expected = silu(expected);
      }
      error += std::pow(all[static_cast<size_t>(r * y_stride + o)] - expected, 2);
      size += expected * expected;
    }
    for (int o = c.outputs; o < y_stride; ++o) {
      ASSERT_EQ(all[static_cast<size_t>(r * y_stride + o)], kBefore) << "written beyond the outputs";
    }
  }
  EXPECT_LT(std::sqrt(error / size), c.precision == Precision::kF32 ? 1e-5 : 4e-3);
  for (const int rows : {1, 2, 7, 8, 9, 16, 17, 25, 33, 49, 64, 65}) {
    const int first = kRows - rows;
    int shapes = 0;
    for (const auto shape : {cuda::GemmShape::kBest, cuda::GemmShape::kFew, cuda::GemmShape::kWide16,
                             cuda::GemmShape::kWide32, cuda::GemmShape::kWide64, cuda::GemmShape::kCluster}) {
      const std::vector<float> some = run(first, rows, shape);
      if (some.empty()) continue;
      ++shapes;
      ASSERT_TRUE(std::equal(some.begin(), some.end(), all.begin() + first * y_stride))
          << rows << " rows, shape " << static_cast<int>(shape);
    }
    EXPECT_GE(shapes, 4);
  }
}

std::vector<GemmCase> GemmCases() {
  std::vector<GemmCase> cases;
  for (const Precision precision : {Precision::kBF16, Precision::kF32}) {
    for (const GemmKind kind :
         {GemmKind::kNormStore, GemmKind::kNormGated, GemmKind::kAdd, GemmKind::kStore, GemmKind::kStoreSilu}) {
      for (const auto& [outputs, columns] :
           {std::pair(64, 256), std::pair(37, 50), std::pair(8, 3072), std::pair(40, 6144), std::pair(200, 1056)}) {
        cases.push_back({kind, precision, outputs, columns});
      }
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Shapes, GemmTest, ::testing::ValuesIn(GemmCases()), [](const auto& test) {
  const GemmCase& c = test.param;
  return std::string(c.precision == Precision::kF32 ? "f32" : "bf16") + "_kind" +
         std::to_string(static_cast<int>(c.kind)) + "_" + std::to_string(c.outputs) + "x" + std::to_string(c.columns);
});

// Rows of BF16 in the order kSwizzled, as bytes.
std::vector<char> InPieces(const std::vector<char>& rows, int64_t count, int columns, int stride) {
  std::vector<char> pieces(static_cast<size_t>(cuda::gemm::SwizzledBytes(count, columns)), 0);
  for (int64_t row = 0; row < count; ++row) {
    for (int k = 0; k < columns; ++k) {
      std::memcpy(&pieces[static_cast<size_t>(cuda::gemm::ElementOffset(count, row, k))],
                  &rows[static_cast<size_t>(row * stride + k) * 2], 2);
    }
  }
  return pieces;
}

// A product of many rows: its weights, packed, and its rows. For 512 columns and more.
class ManyRows {
 public:
  static constexpr int kMost = 520;

  ManyRows(GemmKind kind, int outputs, int columns, std::mt19937* random) : outputs_(outputs), columns_(columns) {
    matrix.kind = kind;
    matrix.outputs = outputs;
    matrix.columns = columns;
    const bool gated = kind == GemmKind::kNormGated;
    const auto count = static_cast<size_t>(outputs) * static_cast<size_t>(columns);
    std::normal_distribution<float> normal;
    const auto values = [&](size_t n, float size) {
      std::vector<float> v(n);
      for (float& x : v) x = size * normal(*random);
      return v;
    };
    const float size = 1 / std::sqrt(static_cast<float>(columns));
    const std::vector<float> w = values(count, size);
    const std::vector<float> up = values(gated ? count : 1, size);
    std::vector<float> x = values(static_cast<size_t>(kMost) * static_cast<size_t>(columns), 1);
    for (size_t i = 0; i < x.size(); i += 97) x[i] *= 300;  // outliers
    const std::vector<float> norm = values(static_cast<size_t>(columns), 1);
    const std::vector<float> bias = values(static_cast<size_t>(outputs), 1);
    auto packed = DeviceMemory::AllocateZeroed(matrix.bytes(Precision::kBF16));
    auto rows = DeviceMemory::Allocate(static_cast<size_t>(kMost) * static_cast<size_t>(columns) * 2);
    auto factors = DeviceMemory::Allocate(kMost * sizeof(float));
    EXPECT_TRUE(packed.ok() && rows.ok() && factors.ok());
    packed_ = std::move(*packed);
    scratch_ = std::move(*rows);
    factors_ = std::move(*factors);
    matrix.data = packed_.data();
    const DeviceMemory device_w = ToDevice(w.data(), w.size() * 4);
    const DeviceMemory device_up = ToDevice(up.data(), up.size() * 4);
    Pack(launch_, Precision::kBF16, matrix, gated ? cuda::PackPart::kGate : cuda::PackPart::kWhole, DType::kF32,
         device_w.data(), 0, outputs);
    if (gated) {
      Pack(launch_, Precision::kBF16, matrix, cuda::PackPart::kUp, DType::kF32, device_up.data(), 0, outputs);
    }
    if (columns % cuda::gemm::kSwizzledColumns == 0) {
      auto pieces = DeviceMemory::Allocate(matrix.bytes(Precision::kBF16));
      EXPECT_TRUE(pieces.ok());
      pieces_ = std::move(*pieces);
      cuda::gemm::ArrangeWeights(launch_, matrix, pieces_.data());
      matrix.swizzled = pieces_.data();
    }
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const std::vector<char> encoded = Encode(x, normed() ? Precision::kF32 : Precision::kBF16);
    x_ = ToDevice(encoded.data(), encoded.size());
    norm_ = ToDevice(norm.data(), norm.size() * 4);
    bias_ = ToDevice(bias.data(), bias.size() * 4);
  }

  bool normed() const { return matrix.kind == GemmKind::kNormStore || matrix.kind == GemmKind::kNormGated; }
  int y_stride(int more) const { return (outputs_ + 3) / 4 * 4 + more; }

  // The results of rows [first, first + rows), with `more` floats between rows, and with the bias if there is one.
  // Empty if the shape cannot run. The scratch memory is filled with NaN before. `pieces`: x, of kAdd, or y, of
  // kNormGated, is in the order kSwizzled.
  std::vector<float> Run(cuda::GemmShape shape, int first, int rows, int more, float* sums = nullptr,
                         bool pieces = false) {
    const bool floats = matrix.kind == GemmKind::kNormStore || matrix.kind == GemmKind::kAdd;
    const Precision y_precision = floats ? Precision::kF32 : Precision::kBF16;
    matrix.bias = more != 0 && matrix.kind != GemmKind::kNormGated ? bias_.as<const float>() : nullptr;
    const std::vector<char> before =
        Encode(std::vector<float>(static_cast<size_t>(rows * y_stride(more)), 0.3F), y_precision);
    const DeviceMemory y = ToDevice(before.data(), before.size());
    EXPECT_EQ(cudaMemset(scratch_.data(), 0xFF, scratch_.bytes()), cudaSuccess);
    cuda::GemmRows r;
    r.x = x_.as<const char>() + static_cast<size_t>(first * columns_) * (normed() ? 4 : 2);
    r.x_stride = columns_;
    r.y = y.data();
    r.y_stride = y_stride(more);
    r.rows = rows;
    r.norm = normed() ? norm_.as<const float>() : nullptr;
    r.eps = 1e-6F;
    r.normed = {scratch_.data(), factors_.as<float>(), columns_, sums};
    r.shape = shape;
    r.x_swizzled = pieces && matrix.kind == GemmKind::kAdd;
    r.y_swizzled = pieces && matrix.kind == GemmKind::kNormGated;
    DeviceMemory x_pieces, y_pieces;
    if (r.x_swizzled) {
      std::vector<char> plain(static_cast<size_t>(rows * columns_) * 2);
      EXPECT_EQ(cudaMemcpy(plain.data(), r.x, plain.size(), cudaMemcpyDeviceToHost), cudaSuccess);
      const std::vector<char> arranged = InPieces(plain, rows, columns_, columns_);
      x_pieces = ToDevice(arranged.data(), arranged.size());
      r.x = x_pieces.data();
    }
    if (r.y_swizzled) {
      const std::vector<char> unset(static_cast<size_t>(cuda::gemm::SwizzledBytes(rows, outputs_)), 0x7F);
      y_pieces = ToDevice(unset.data(), unset.size());
      r.y = y_pieces.data();
    }
    if (shape != cuda::GemmShape::kBest && !CanRun(shape, matrix, r, launch_.numbers->products)) return {};
    Gemm(launch_, Precision::kBF16, matrix, r);
    EXPECT_EQ(launch_.error, cudaSuccess) << cudaGetErrorString(launch_.error);
    std::vector<char> after(before.size());
    if (r.y_swizzled) {
      // Compared as plain rows, with what lay between them.
      std::vector<char> arranged(y_pieces.bytes());
      EXPECT_EQ(cudaMemcpy(arranged.data(), y_pieces.data(), arranged.size(), cudaMemcpyDeviceToHost), cudaSuccess);
      after = before;
      for (int64_t row = 0; row < rows; ++row) {
        for (int k = 0; k < outputs_; ++k) {
          std::memcpy(&after[static_cast<size_t>(row * y_stride(more) + k) * 2],
                      &arranged[static_cast<size_t>(cuda::gemm::ElementOffset(rows, row, k))], 2);
        }
      }
    } else {
      EXPECT_EQ(cudaMemcpy(after.data(), y.data(), after.size(), cudaMemcpyDeviceToHost), cudaSuccess);
    }
    return Decode(after, y_precision);
  }

  // The rows in BF16; for the norm kinds those of the last Run().
  const void* bf16_rows() const { return normed() ? scratch_.data() : x_.data(); }
  const cuda::Launcher& launch() const { return launch_; }

  Matrix matrix;

 private:
  int outputs_, columns_;
  cuda::Launcher launch_{nullptr, &cuda::kH200Numbers};
  DeviceMemory packed_, pieces_, x_, norm_, bias_, scratch_, factors_;
};

class TilesTest : public ::testing::TestWithParam<std::tuple<cuda::GemmShape, GemmKind>> {};

// Products of two operands in pieces against those of a warp's matrix instruction: the same bits for any number of
// rows, with and without bias, rows as they are and in pieces, and whatever lay in the scratch memory.
TEST_P(TilesTest, GivesTheBitsOfFewRows) {
  QTTS_NEEDS_DEVICE();
  const auto [shape, kind] = GetParam();
  std::mt19937 random(33);
  int ran = 0;
  for (const auto& [outputs, columns] : {std::pair(256, 512), std::pair(512, 2048), std::pair(256, 3072)}) {
    ManyRows product(kind, outputs, columns, &random);
    for (const int rows : {1, 64, 65, 100, 128, 130, 257, 392, ManyRows::kMost}) {
      for (const int more : {0, 4}) {
        const std::vector<float> expected = product.Run(cuda::GemmShape::kWide64, 0, rows, more);
        for (const bool pieces : {false, true}) {
          const std::vector<float> got = product.Run(shape, 0, rows, more, nullptr, pieces);
          if (got.empty()) continue;
          ++ran;
          const auto stride = static_cast<size_t>(product.y_stride(more));
          for (size_t i = 0; i < got.size(); ++i) {
            ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected[i]))
                << outputs << " x " << columns << ", " << rows << " rows, pieces " << pieces << ", stride " << stride
                << ": row " << i / stride << ", output " << i % stride << ": " << got[i] << " instead of "
                << expected[i];
          }
        }
      }
    }
  }
  if (!testing::Device().CanRunWarpgroups()) {
    EXPECT_EQ(ran, 0);
  }
  QTTS_NEEDS_WARPGROUPS();
  EXPECT_EQ(ran, 3 * 9 * 2 * 2);
}

std::string TilesName(const ::testing::TestParamInfo<std::tuple<cuda::GemmShape, GemmKind>>& test) {
  const int shape = static_cast<int>(std::get<0>(test.param)) - static_cast<int>(cuda::GemmShape::kTiles128);
  return "shape" + std::to_string(shape) + "_kind" + std::to_string(static_cast<int>(std::get<1>(test.param)));
}

INSTANTIATE_TEST_SUITE_P(Shapes, TilesTest,
                         ::testing::Combine(::testing::Values(cuda::GemmShape::kTiles128, cuda::GemmShape::kTiles64),
                                            ::testing::Values(GemmKind::kAdd, GemmKind::kNormStore,
                                                              GemmKind::kNormGated)),
                         TilesName);

class LibraryTest : public ::testing::TestWithParam<GemmKind> {};

// cuBLASLt's products against the project's own: close, but not the same bits. The bits of a row do not depend on the
// other rows.
TEST_P(LibraryTest, IsCloseToTheOwnProducts) {
  QTTS_NEEDS_DEVICE();
  const auto library = cuda::CublasLt::Open();
  if (!library.ok()) GTEST_SKIP() << library.status().message();
  std::mt19937 random(32);
  for (const auto& [outputs, columns] : {std::pair(64, 512), std::pair(203, 1024), std::pair(328, 3072)}) {
    ManyRows product(GetParam(), outputs, columns, &random);
    const std::vector<float> own = product.Run(cuda::GemmShape::kBest, 0, ManyRows::kMost, 3);
    Matrix& matrix = product.matrix;
    const int weight_rows = cuda::gemm::LibraryOutputs(matrix);
    const auto plain = DeviceMemory::Allocate(matrix.bytes(Precision::kBF16));
    const auto sums =
        DeviceMemory::Allocate(static_cast<size_t>(ManyRows::kMost) * static_cast<size_t>(weight_rows) * 4);
    ASSERT_TRUE(plain.ok() && sums.ok());
    cuda::gemm::Unpack(product.launch(), matrix, plain->data());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const auto pinned = (*library)->Pin(256, ManyRows::kMost, weight_rows, columns, plain->data(), product.bf16_rows(),
                                        sums->as<float>());
    ASSERT_TRUE(pinned.ok()) << pinned.status().message();
    matrix.data = plain->data();
    matrix.library = pinned->get();
    const std::vector<float> all = product.Run(cuda::GemmShape::kBest, 0, ManyRows::kMost, 3, sums->as<float>());
    double error = 0, size = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      error += std::pow(all[i] - own[i], 2);
      size += std::pow(own[i], 2);
    }
    // Rows are rounded to BF16 with the factor of the norm here, before it there, and gates multiply the difference.
    const double most = GetParam() == GemmKind::kNormGated ? 6e-3 : 4e-3;
    EXPECT_LT(std::sqrt(error / size), most) << outputs << " x " << columns;
    for (const int rows : {1, 7, 64, 257}) {
      const int first = ManyRows::kMost - rows;
      const std::vector<float> some = product.Run(cuda::GemmShape::kBest, first, rows, 3, sums->as<float>());
      ASSERT_TRUE(std::equal(some.begin(), some.end(), all.begin() + first * product.y_stride(3)))
          << outputs << " x " << columns << ", " << rows << " rows";
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Kinds, LibraryTest,
                         ::testing::Values(GemmKind::kAdd, GemmKind::kStore, GemmKind::kStoreSilu, GemmKind::kNormStore,
                                           GemmKind::kNormGated),
                         [](const auto& test) { return "kind" + std::to_string(static_cast<int>(test.param)); });

struct AttentionCase {
  const char* name;
  int heads, kv_heads, head_dim, window;
  bool normed;
};

// Random rows of queries, keys and values, with the layer's norms and frequencies.
struct AttentionInputs {
  struct Host {
    TransformerConfig config;
    size_t dim = 0;
    size_t width = 0;  // of a row
    std::vector<float> qkv, q_norm, k_norm, frequencies;
  };

  AttentionInputs(const AttentionCase& c, int layers, size_t rows, unsigned seed) : normed(c.normed) {
    host.config.num_layers = layers;
    host.config.num_heads = c.heads;
    host.config.num_kv_heads = c.kv_heads;
    host.config.head_dim = c.head_dim;
    host.config.sliding_window = c.window;
    host.config.rms_norm_eps = 1e-6F;
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-1, 1);
    const auto values = [&](size_t n, float around) {
      std::vector<float> v(n);
      for (float& x : v) x = around + uniform(random);
      return v;
    };
    host.dim = static_cast<size_t>(c.head_dim);
    host.width = static_cast<size_t>(c.heads + 2 * c.kv_heads) * host.dim;
    host.qkv = values(rows * host.width, 0);
    host.q_norm = values(host.dim, 1);
    host.k_norm = values(host.dim, 1);
    for (size_t i = 0; i < host.dim / 2; ++i) {
      host.frequencies.push_back(std::pow(10000.0F, -static_cast<float>(2 * i) / static_cast<float>(host.dim)));
    }
    qkv = ToDevice(host.qkv.data(), host.qkv.size() * 4);
    q_norm = ToDevice(host.q_norm.data(), host.dim * 4);
    k_norm = ToDevice(host.k_norm.data(), host.dim * 4);
    frequencies = ToDevice(host.frequencies.data(), host.frequencies.size() * 4);
  }

  cuda::AttentionLayer LayerAt(int index) const {
    return {index, normed ? q_norm.as<const float>() : nullptr, normed ? k_norm.as<const float>() : nullptr,
            frequencies.as<const float>()};
  }

  bool normed;
  Host host;
  DeviceMemory qkv, q_norm, k_norm, frequencies;
};

class AttentionTest : public ::testing::TestWithParam<std::tuple<AttentionCase, Precision>> {};

// The rows of a prompt at once: norm, RoPE, softmax and sum as in double precision. Each row has the same bits as when
// it comes alone, with the rows before it in the cache.
TEST_P(AttentionTest, EqualsThePlainSumAndTheStep) {
  QTTS_NEEDS_DEVICE();
  const auto& [c, precision] = GetParam();
  constexpr int kRows = 152, kPages = 2;  // three splits, two pages
  const AttentionInputs in(c, /*layers=*/1, kRows, static_cast<unsigned>(c.heads * 100 + c.head_dim));
  const auto& [config, dim, width, qkv, q_norm, k_norm, frequencies] = in.host;
  const DeviceMemory& device_qkv = in.qkv;
  const cuda::AttentionLayer layer = in.LayerAt(0);
  const size_t element = cuda::ElementBytes(precision);
  const size_t page = size_t{cuda::kPagePositions} * 2 * static_cast<size_t>(c.kv_heads) * dim * element;
  auto cache = DeviceMemory::AllocateZeroed(kPages * page);
  const int splits = cuda::SplitsFor(config, kRows);
  const int y_width = c.heads * c.head_dim;
  auto y = DeviceMemory::AllocateZeroed(static_cast<size_t>(kRows * y_width) * element);
  auto step_y = DeviceMemory::AllocateZeroed(static_cast<size_t>(y_width) * element);
  auto partial = DeviceMemory::AllocateZeroed(cuda::PartialElements(config, kRows, splits) * 4);
  auto tickets = DeviceMemory::AllocateZeroed(cuda::TicketElements(config, kRows) * 4);
  ASSERT_TRUE(cache.ok() && y.ok() && step_y.ok() && partial.ok() && tickets.ok());
  void* const table[kPages] = {cache->data(), cache->as<char>() + page};
  const DeviceMemory device_table = ToDevice(table, sizeof(table));
  const cuda::KeyValuePages pages = {device_table.as<void*>(), kPages, cuda::kPagePositions};
  const cuda::AttentionScratch scratch = {partial->as<float>(), tickets->as<unsigned>()};
  const cuda::Launcher launch(nullptr, &cuda::kH200Numbers);
  cuda::SequenceRows rows;
  rows.per_sequence = kRows;
  rows.appended = true;
  rows.rows = kRows;
  AppendKeyValues(launch, precision, config, layer, rows, pages, device_qkv.as<const float>());
  Attend(launch, precision, config, layer, rows, pages, scratch, splits, device_qkv.as<const float>(),
         {y->data(), y_width}, nullptr);
  ASSERT_EQ(launch.error, cudaSuccess);
  std::vector<char> bytes(y->bytes());
  ASSERT_EQ(cudaMemcpy(bytes.data(), y->data(), bytes.size(), cudaMemcpyDeviceToHost), cudaSuccess);
  const std::vector<float> got = Decode(bytes, precision);

  const auto place = [&](int row, size_t offset, const std::vector<float>& norm) {
    const float* const x = qkv.data() + static_cast<size_t>(row) * width + offset;
    double squares = 0;
    for (size_t i = 0; i < dim; ++i) squares += static_cast<double>(x[i]) * x[i];
    const double factor = c.normed ? 1 / std::sqrt(squares / static_cast<double>(dim) + 1e-6) : 1;
    std::vector<double> placed(dim);
    for (size_t i = 0; i < dim / 2; ++i) {
      const double a = x[i] * factor * (c.normed ? norm[i] : 1);
      const double b = x[dim / 2 + i] * factor * (c.normed ? norm[dim / 2 + i] : 1);
      const double angle = row * static_cast<double>(frequencies[i]);
      placed[i] = a * std::cos(angle) - b * std::sin(angle);
      placed[dim / 2 + i] = b * std::cos(angle) + a * std::sin(angle);
    }
    return placed;
  };
  double error = 0, size = 0;
  for (int row = 0; row < kRows; ++row) {
    for (int head = 0; head < c.heads; ++head) {
      const auto kv = static_cast<size_t>(c.heads + head / (c.heads / c.kv_heads));
      const std::vector<double> q = place(row, static_cast<size_t>(head) * dim, q_norm);
      std::vector<double> sum(dim);
      double total = 0;
      for (int p = c.window > 0 ? std::max(0, row + 1 - c.window) : 0; p <= row; ++p) {
        const std::vector<double> key = place(p, kv * dim, k_norm);
        double dot = 0;
        for (size_t i = 0; i < dim; ++i) dot += q[i] * key[i];
        const double weight = std::exp(dot / std::sqrt(static_cast<double>(dim)));
        total += weight;
        const float* const value =
            qkv.data() + static_cast<size_t>(p) * width + (kv + static_cast<size_t>(c.kv_heads)) * dim;
        for (size_t i = 0; i < dim; ++i) sum[i] += weight * value[i];
      }
      for (size_t i = 0; i < dim; ++i) {
        const float actual = got[static_cast<size_t>(row * y_width) + static_cast<size_t>(head) * dim + i];
        error += std::pow(actual - sum[i] / total, 2);
        size += std::pow(sum[i] / total, 2);
      }
    }
  }
  EXPECT_LT(std::sqrt(error / size), precision == Precision::kF32 ? 1e-5 : 1e-2);

  for (const int row : {0, 1, 63, 64, 100, 127, 128, 151}) {
    rows.per_sequence = 1;
    rows.appended = false;
    rows.rows = 1;
    rows.first_position = row;
    Attend(launch, precision, config, layer, rows, pages, scratch, splits,
           device_qkv.as<const float>() + static_cast<size_t>(row) * width, {step_y->data(), y_width}, nullptr);
    std::vector<char> alone(step_y->bytes());
    ASSERT_EQ(cudaMemcpy(alone.data(), step_y->data(), alone.size(), cudaMemcpyDeviceToHost), cudaSuccess);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), bytes.begin() + static_cast<std::ptrdiff_t>(alone.size()) * row))
        << "row " << row;
  }
}

// A whole context in one block or warp, for many rows, against the kernel with splits: the same results, and the same
// keys and values in the cache. Sequences like the predictor's (two new rows, then one by one, in pages of 16), steps
// of many sequences, and contexts up to one that takes two turns.
TEST_P(AttentionTest, ManyRowsGiveTheBitsOfSplits) {
  QTTS_NEEDS_DEVICE();
  const auto& [c, precision] = GetParam();
  constexpr int kSequences = 40;
  TransformerConfig config;
  config.num_layers = 2;
  config.num_heads = c.heads;
  config.num_kv_heads = c.kv_heads;
  config.head_dim = c.head_dim;
  config.sliding_window = c.window;
  config.rms_norm_eps = 1e-6F;
  std::mt19937 random(static_cast<unsigned>(c.heads * 7 + c.head_dim));
  std::normal_distribution<float> normal;
  const auto values = [&](size_t n) {
    std::vector<float> v(n);
    for (float& x : v) x = normal(random);
    return v;
  };
  const auto dim = static_cast<size_t>(c.head_dim);
  const size_t width = static_cast<size_t>(c.heads + 2 * c.kv_heads) * dim;
  const size_t element = cuda::ElementBytes(precision);
  const int y_width = c.heads * c.head_dim;
  constexpr size_t kMostRows = 2 * kSequences;
  const std::vector<float> norm = values(dim);
  const std::vector<float> frequencies(dim / 2, 0.1F);
  const DeviceMemory device_norm = ToDevice(norm.data(), dim * 4);
  const DeviceMemory device_frequencies = ToDevice(frequencies.data(), frequencies.size() * 4);
  const float* const norms = c.normed ? device_norm.as<const float>() : nullptr;
  const cuda::AttentionLayer layer = {1, norms, norms, device_frequencies.as<const float>()};
  cuda::DeviceNumbers whole = cuda::kH200Numbers;
  whole.attention.whole_contexts = true;
  const cuda::Launcher by_splits(nullptr, &cuda::kH200Numbers);
  const cuda::Launcher by_contexts(nullptr, &whole);

  struct Side {
    DeviceMemory cache, table, y;
  };
  // `shared`: pages at the beginning of every sequence.
  const auto compare = [&](const char* what, int page_positions, int pages_of_sequence, int sequences,
                           const std::vector<cuda::SequenceRows>& calls, int shared = 0) {
    const size_t page = static_cast<size_t>(page_positions) * 2 * 2 * static_cast<size_t>(c.kv_heads) * dim * element;
    const int own = pages_of_sequence - shared;
    const auto pages = static_cast<size_t>(shared + sequences * own);
    const std::vector<char> before = Encode(values(pages * page / element), precision);
    const int splits = cuda::SplitsFor(config, int64_t{page_positions} * pages_of_sequence);
    auto partial = DeviceMemory::AllocateZeroed(cuda::PartialElements(config, kMostRows, splits) * 4);
    auto tickets = DeviceMemory::AllocateZeroed(cuda::TicketElements(config, kMostRows) * 4);
    ASSERT_TRUE(partial.ok() && tickets.ok());
    // By splits, by whole contexts, and the same with its results in pieces.
    const bool has_pieces = precision == Precision::kBF16 && y_width % cuda::gemm::kSwizzledColumns == 0;
    std::vector<Side> sides(has_pieces ? 3 : 2);
    for (Side& side : sides) {
      side.cache = ToDevice(before.data(), before.size());
      std::vector<void*> addresses;
      for (int i = 0; i < sequences * pages_of_sequence; ++i) {
        const int n = i % pages_of_sequence;
        const int at = n < shared ? n : i / pages_of_sequence * own + n;
        addresses.push_back(side.cache.as<char>() + static_cast<size_t>(at) * page);
      }
      side.table = ToDevice(addresses.data(), addresses.size() * sizeof(void*));
      side.y = std::move(
          *DeviceMemory::Allocate(static_cast<size_t>(cuda::gemm::PaddedRows(kMostRows) * y_width) * element));
    }
    for (const cuda::SequenceRows& rows : calls) {
      ASSERT_GE(rows.rows, cuda::kManyRows);
      ASSERT_LE(rows.rows, static_cast<int64_t>(kMostRows));
      const std::vector<float> qkv = values(static_cast<size_t>(rows.rows) * width);
      const DeviceMemory device_qkv = ToDevice(qkv.data(), qkv.size() * 4);
      std::vector<std::vector<char>> got(sides.size());
      for (size_t i = 0; i < sides.size(); ++i) {
        const cuda::Launcher& launch = i == 0 ? by_splits : by_contexts;
        ASSERT_EQ(cudaMemset(sides[i].y.data(), 0, sides[i].y.bytes()), cudaSuccess);
        Attend(launch, precision, config, layer, rows, {sides[i].table.as<void*>(), pages_of_sequence, page_positions},
               {partial->as<float>(), tickets->as<unsigned>()}, splits, device_qkv.as<const float>(),
               {sides[i].y.data(), y_width, i == 2}, nullptr);
        ASSERT_EQ(launch.error, cudaSuccess) << cudaGetErrorString(launch.error);
        for (const DeviceMemory* memory : {&sides[i].y, &sides[i].cache}) {
          const size_t at = got[i].size();
          got[i].resize(at + memory->bytes());
          ASSERT_EQ(cudaMemcpy(got[i].data() + at, memory->data(), memory->bytes(), cudaMemcpyDeviceToHost),
                    cudaSuccess);
        }
      }
      EXPECT_TRUE(got[0] == got[1]) << what << ", from position " << rows.first_position;
      if (!has_pieces) continue;
      const std::vector<char> plain(got[0].begin(), got[0].begin() + rows.rows * y_width * 2);
      std::vector<char> pieces = InPieces(plain, rows.rows, y_width, y_width);
      pieces.resize(sides[2].y.bytes());
      pieces.insert(pieces.end(), got[0].begin() + static_cast<std::ptrdiff_t>(pieces.size()), got[0].end());
      EXPECT_TRUE(pieces == got[2]) << "in pieces: " << what << ", from position " << rows.first_position;
    }
  };

  std::vector<cuda::SequenceRows> predictor;
  for (int position = 0; position < 16; position += position == 0 ? 2 : 1) {
    cuda::SequenceRows rows;
    rows.per_sequence = position == 0 ? 2 : 1;
    rows.first_position = position;
    rows.rows = position == 0 ? 2 * kSequences : kMostRows;
    predictor.push_back(rows);
  }
  compare("the predictor", 16, 1, static_cast<int>(kMostRows), predictor);

  std::vector<int> slots, positions, long_slots, long_positions;
  for (size_t i = 0; i < kMostRows; ++i) {
    slots.push_back(i % 9 == 4 ? -1 : static_cast<int>(i));
    positions.push_back(static_cast<int>(i * 37 % 256));
    long_slots.push_back(0);
    long_positions.push_back(static_cast<int>(i * 97 % 2500));
  }
  const DeviceMemory device_slots = ToDevice(slots.data(), slots.size() * sizeof(int));
  const DeviceMemory device_positions = ToDevice(positions.data(), positions.size() * sizeof(int));
  cuda::SequenceRows step;
  step.slots = device_slots.as<const int>();
  step.positions = device_positions.as<const int>();
  step.rows = kMostRows;
  compare("a step", cuda::kPagePositions, 2, static_cast<int>(kMostRows), {step});
  const DeviceMemory device_long_slots = ToDevice(long_slots.data(), long_slots.size() * sizeof(int));
  const DeviceMemory device_long_positions = ToDevice(long_positions.data(), long_positions.size() * sizeof(int));
  step.slots = device_long_slots.as<const int>();
  step.positions = device_long_positions.as<const int>();
  step.appended = true;
  compare("long contexts", cuda::kPagePositions, 20, 1, {step});

  // Steps of long contexts. A sequence's own pages are its last two, on both sides of 1,024 positions.
  constexpr int kLongPages = 9, kSharedPages = kLongPages - 2;
  std::vector<int> last_positions;
  for (size_t i = 0; i < kMostRows; ++i) {
    last_positions.push_back(kSharedPages * cuda::kPagePositions + static_cast<int>(i * 37 % 256));
  }
  const DeviceMemory device_last_positions = ToDevice(last_positions.data(), last_positions.size() * sizeof(int));
  step.slots = device_slots.as<const int>();
  step.positions = device_last_positions.as<const int>();
  step.appended = false;
  compare("long steps", cuda::kPagePositions, kLongPages, static_cast<int>(kMostRows), {step}, kSharedPages);
}

// Scores of the text in double precision: log_sum, mass and the scores themselves.
struct PlainScores {
  std::vector<double> scores;
  double log_sum = 0, mass = 0;
};
PlainScores ScoresOf(const std::vector<double>& all, int first_seen, const TextWindow& window) {
  const int positions = static_cast<int>(all.size());
  PlainScores plain;
  if (window.begin >= positions || window.text_begin < first_seen) return plain;
  double text = 0, total = 0;
  for (int p = first_seen; p < positions; ++p) {
    const double weight = std::exp(all[static_cast<size_t>(p)]);
    total += weight;
    if (p >= window.text_begin && p < window.text_end) text += weight;
  }
  plain.log_sum = std::log(text);
  plain.mass = text / total;
  for (int p = window.begin; p < std::min({window.text_end, positions, window.begin + kTextScores}); ++p) {
    plain.scores.push_back(all[static_cast<size_t>(p)]);
  }
  return plain;
}

// Queries of several rows and their scores, across pages: as in double precision, and bit for bit the same alone and
// from other pages. Rows without a window or a slot are left as they are.
TEST_P(AttentionTest, ScoresOfTheTextAreThePlainOnes) {
  QTTS_NEEDS_DEVICE();
  const auto& [c, precision] = GetParam();
  constexpr int kPositions = 2300, kPages = 18, kSlots = 9;
  const AttentionInputs in(c, /*layers=*/2, kPositions, static_cast<unsigned>(c.heads * 31 + c.head_dim));
  const auto& [config, dim, width, qkv, q_norm, k_norm, frequencies] = in.host;
  const DeviceMemory& device_qkv = in.qkv;
  const cuda::AttentionLayer layer = in.LayerAt(1);

  // The same keys on two sides, in pages of another order. All slots share a side's pages.
  const size_t page =
      size_t{cuda::kPagePositions} * 2 * 2 * static_cast<size_t>(c.kv_heads) * dim * cuda::ElementBytes(precision);
  std::vector<DeviceMemory> caches, tables;
  const cuda::Launcher launch(nullptr, &cuda::kH200Numbers);
  for (const bool turned : {false, true}) {
    auto cache = DeviceMemory::AllocateZeroed(kPages * page);
    ASSERT_TRUE(cache.ok());
    std::vector<void*> addresses;
    for (size_t i = 0; i < size_t{kSlots} * kPages; ++i) {
      const size_t n = i % kPages;
      addresses.push_back(cache->as<char>() + (turned ? kPages - 1 - n : n) * page);
    }
    tables.push_back(ToDevice(addresses.data(), addresses.size() * sizeof(void*)));
    cuda::SequenceRows rows;
    rows.per_sequence = kPositions;
    rows.appended = true;
    rows.rows = kPositions;
    AppendKeyValues(launch, precision, config, layer, rows, {tables.back().as<void*>(), kPages, cuda::kPagePositions},
                    device_qkv.as<const float>());
    caches.push_back(std::move(*cache));
  }

  const std::vector<int> positions = {0, 1, 63, 127, 128, 300, 700, 2047, kPositions - 1};
  std::vector<int> slots;
  std::vector<TextWindow> windows;
  std::vector<float> rows_qkv;
  for (int row = 0; row < kSlots; ++row) {
    const int position = positions[static_cast<size_t>(row)];
    slots.push_back(row == 4 ? -1 : kSlots - 1 - row);
    const int begin = position / 5;
    const int end = row % 2 == 0 ? position / 2 + 1 : position + 7;
    windows.push_back(row == 5 ? TextWindow() : TextWindow{begin, end, std::max(begin, end - 1 - row * 5)});
    rows_qkv.insert(rows_qkv.end(), qkv.begin() + static_cast<std::ptrdiff_t>(position * width),
                    qkv.begin() + static_cast<std::ptrdiff_t>((position + 1) * width));
  }
  const DeviceMemory device_slots = ToDevice(slots.data(), slots.size() * sizeof(int));
  const DeviceMemory device_positions = ToDevice(positions.data(), positions.size() * sizeof(int));
  const DeviceMemory device_windows = ToDevice(windows.data(), windows.size() * sizeof(TextWindow));
  const DeviceMemory device_rows = ToDevice(rows_qkv.data(), rows_qkv.size() * 4);
  const unsigned frame_number = 13;
  const DeviceMemory device_frame = ToDevice(&frame_number, sizeof(frame_number));
  auto queries = DeviceMemory::AllocateZeroed(kSlots * dim * 4);
  ASSERT_TRUE(queries.ok());
  const cuda::AlignedQueries aligned = {1, c.heads - 1, queries->as<float>()};
  cuda::SequenceRows rows;
  rows.slots = device_slots.as<const int>();
  rows.positions = device_positions.as<const int>();
  rows.rows = kSlots;
  KeepQueries(launch, config, layer, aligned, rows, device_rows.as<const float>());

  const cuda::FrameRing ring = {4, kSlots};
  constexpr int kPoison = 0x5A;
  auto results = PinnedMemory::AllocateZeroed(size_t{4} * kSlots * sizeof(cuda::FrameRowResult));
  ASSERT_TRUE(results.ok());
  const auto score = [&](const DeviceMemory& table, int first, int count) {
    std::memset(results->data(), kPoison, results->bytes());
    cuda::FrameRows frame;
    frame.slots = device_slots.as<int>() + first;
    frame.positions = device_positions.as<int>() + first;
    frame.windows = device_windows.as<TextWindow>() + first;
    frame.frame = device_frame.as<unsigned>();
    ScoreText(launch, precision, config, aligned, frame, {table.as<void*>(), kPages, cuda::kPagePositions}, ring, count,
              results->as<cuda::FrameRowResult>());
    EXPECT_EQ(launch.error, cudaSuccess) << cudaGetErrorString(launch.error);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const auto* const entry = results->as<const cuda::FrameRowResult>() + frame_number % 4 * kSlots;
    return std::vector<cuda::FrameRowResult>(entry, entry + count);
  };
  const std::vector<cuda::FrameRowResult> got = score(tables[0], 0, kSlots);
  const std::vector<cuda::FrameRowResult> turned = score(tables[1], 0, kSlots);

  const auto place = [&](int row, size_t offset, const std::vector<float>& norm) {
    const float* const x = qkv.data() + static_cast<size_t>(row) * width + offset;
    double squares = 0;
    for (size_t i = 0; i < dim; ++i) squares += static_cast<double>(x[i]) * x[i];
    const double factor = c.normed ? 1 / std::sqrt(squares / static_cast<double>(dim) + 1e-6) : 1;
    std::vector<double> placed(dim);
    for (size_t i = 0; i < dim / 2; ++i) {
      const double a = x[i] * factor * (c.normed ? norm[i] : 1);
      const double b = x[dim / 2 + i] * factor * (c.normed ? norm[dim / 2 + i] : 1);
      const double angle = static_cast<float>(row) * frequencies[i];
      placed[i] = a * std::cos(angle) - b * std::sin(angle);
      placed[dim / 2 + i] = b * std::cos(angle) + a * std::sin(angle);
    }
    return placed;
  };
  std::vector<std::vector<double>> keys;
  for (int p = 0; p < kPositions; ++p) {
    keys.push_back(place(p, static_cast<size_t>(c.heads + c.kv_heads - 1) * dim, k_norm));
  }
  const double tolerance = precision == Precision::kF32 ? 5e-4 : 0.03;
  int scored = 0;
  for (int row = 0; row < kSlots; ++row) {
    SCOPED_TRACE("row " + std::to_string(row));
    const cuda::RowTextScores& text = got[static_cast<size_t>(row)].text;
    const TextWindow& window = windows[static_cast<size_t>(row)];
    if (slots[static_cast<size_t>(row)] < 0 || !window.wanted()) {
      const std::vector<char> poison(sizeof(text), kPoison);
      EXPECT_EQ(std::memcmp(&text, poison.data(), sizeof(text)), 0);
      continue;
    }
    const int position = positions[static_cast<size_t>(row)];
    const std::vector<double> q = place(position, (static_cast<size_t>(c.heads) - 1) * dim, q_norm);
    std::vector<double> all;
    for (int p = 0; p <= position; ++p) {
      double dot = 0;
      for (size_t i = 0; i < dim; ++i) dot += q[i] * keys[static_cast<size_t>(p)][i];
      all.push_back(dot / std::sqrt(static_cast<double>(dim)));
    }
    const PlainScores plain = ScoresOf(all, c.window > 0 ? std::max(0, position + 1 - c.window) : 0, window);
    ASSERT_EQ(static_cast<size_t>(text.count), plain.scores.size());
    const cuda::RowTextScores alone = score(tables[0], row, 1)[0].text;
    EXPECT_EQ(std::memcmp(&text, &alone, sizeof(text)), 0);
    EXPECT_EQ(std::memcmp(&text, &turned[static_cast<size_t>(row)].text, sizeof(text)), 0);
    if (text.count == 0) continue;
    ++scored;
    for (size_t i = 0; i < plain.scores.size(); ++i) EXPECT_NEAR(text.scores[i], plain.scores[i], tolerance) << i;
    EXPECT_NEAR(text.log_sum, plain.log_sum, tolerance);
    EXPECT_NEAR(text.mass, plain.mass, tolerance);
  }
  // Two rows ask for nothing, and row 1 for a position behind its own.
  EXPECT_GE(scored, c.window > 0 ? 2 : kSlots - 3);
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionTest,
                         ::testing::Combine(::testing::Values(AttentionCase{"talker", 4, 2, 128, 0, true},
                                                              AttentionCase{"wide_group", 8, 2, 64, 0, true},
                                                              AttentionCase{"plain", 3, 3, 40, 0, false},
                                                              AttentionCase{"window", 4, 2, 128, 72, true},
                                                              AttentionCase{"large_heads", 4, 1, 256, 0, false}),
                                            ::testing::Values(Precision::kBF16, Precision::kF32)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).name) +
                                  (std::get<1>(test.param) == Precision::kF32 ? "_f32" : "_bf16");
                         });

// Parameter: whether rows get few threads.
class SampleTest : public ::testing::TestWithParam<bool> {};

// The talker's rules on random logits of every kind, id by id against the CPU.
TEST_P(SampleTest, ChoosesLikeTheCpu) {
  QTTS_NEEDS_DEVICE();
  cuda::DeviceNumbers numbers = cuda::kH200Numbers;
  if (GetParam()) numbers.sampling.rows_of_many_threads = 0;
  std::mt19937 random(77);
  std::normal_distribution<float> normal(0, 3);
  constexpr int kVocab = 3072, kEos = 2150, kRows = 16, kGroups = 2;
  for (int trial = 0; trial < 40; ++trial) {
    GenerationSettings settings;
    settings.talker.do_sample = trial % 5 != 0;
    settings.talker.temperature = trial % 3 == 0 ? 1.0F : 0.3F + 0.2F * static_cast<float>(trial % 7);
    settings.talker.top_k = std::vector<int>{0, 1, 50, 2000, 5000}[static_cast<size_t>(trial % 5)];
    settings.talker.top_p = trial % 4 == 1 ? 0.7F : trial % 4 == 2 ? 0.05F : 1.0F;
    settings.repetition_penalty = trial % 2 == 0 ? 1.3F : 1.0F;
    std::vector<cuda::SlotState> states(kRows);
    std::vector<TalkerSampler> samplers;
    std::vector<int> rows(kRows);
    for (int r = 0; r < kRows; ++r) {
      rows[static_cast<size_t>(r)] = r;
      cuda::SlotState& s = states[static_cast<size_t>(r)];
      s = {};
      s.seed = random();
      s.max_new_tokens = 1000;
      s.talker = {settings.talker.do_sample ? 1 : 0, settings.talker.temperature, settings.talker.top_k,
                  settings.talker.top_p};
      s.history_rules = {settings.repetition_penalty};
      samplers.emplace_back(kVocab, kEos, settings, s.seed);
    }
    const DeviceMemory device_states = ToDevice(states.data(), states.size() * sizeof(cuda::SlotState));
    auto history = DeviceMemory::AllocateZeroed(kRows * kVocab / 8);
    auto codes = DeviceMemory::AllocateZeroed(kRows * kGroups * sizeof(int));
    auto live = DeviceMemory::AllocateZeroed(2 * sizeof(int));
    ASSERT_TRUE(history.ok() && codes.ok() && live.ok());
    const DeviceMemory slots = ToDevice(rows.data(), rows.size() * sizeof(int));
    for (int step = 0; step < 6; ++step) {
      std::vector<float> logits(kRows * kVocab);
      for (float& x : logits) {
        x = normal(random);
        if (trial % 7 == 3) x = std::round(x);  // many ties
      }
      if (trial % 11 == 5 && step == 3) logits[kVocab + 5] = std::numeric_limits<float>::quiet_NaN();
      const DeviceMemory device_logits = ToDevice(logits.data(), logits.size() * 4);
      cuda::TalkerSample sample;
      sample.logits = device_logits.as<const float>();
      sample.vocab = kVocab;
      sample.eos_id = kEos;
      sample.history = history->as<unsigned>();
      sample.history_words = kVocab / 32;
      cuda::FrameRows frame;
      frame.slots = slots.as<int>();
      frame.codes = codes->as<int>();
      frame.live = live->as<int>();
      const cuda::Launcher launch(nullptr, &numbers);
      SampleTalker(launch, Precision::kBF16, sample, frame, device_states.as<cuda::SlotState>(), kGroups, kRows);
      ASSERT_EQ(launch.error, cudaSuccess);
      std::vector<cuda::SlotState> after(kRows);
      ASSERT_EQ(cudaMemcpy(after.data(), device_states.data(), after.size() * sizeof(cuda::SlotState),
                           cudaMemcpyDeviceToHost),
                cudaSuccess);
      for (int r = 0; r < kRows; ++r) {
        if (states[static_cast<size_t>(r)].end != EndReason::kNone) continue;
        const int32_t expected =
            samplers[static_cast<size_t>(r)].Sample({&logits[static_cast<size_t>(r) * kVocab], kVocab});
        const cuda::SlotState& s = after[static_cast<size_t>(r)];
        if (expected == kNoToken) {
          EXPECT_EQ(s.fault, ModelPart::kTalker);
        } else if (expected == kEos) {
          EXPECT_EQ(s.end, EndReason::kComplete);
        } else {
          EXPECT_EQ(s.end, EndReason::kNone);
          EXPECT_EQ(s.codes[0], expected) << "trial " << trial << " step " << step << " row " << r;
        }
      }
      states = after;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, SampleTest, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "few" : "many"; });

double RelativeError(const float* x, const std::vector<float>& reference) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    difference += std::pow(static_cast<double>(x[i]) - reference[i], 2);
    size += std::pow(reference[i], 2);
  }
  return std::sqrt(difference / size);
}

class TeacherForced : public ::testing::TestWithParam<std::tuple<bool, Precision>> {};

// 200 frames of the GPU's own speech; the CPU is given the same codes. Logits of talker and predictor.
TEST_P(TeacherForced, LogitsAreTheCpus) {
  QTTS_NEEDS_DEVICE();
  const auto [large, precision] = GetParam();
  const RandomModel random_model(MidSize(large));
  const Checkpoint& checkpoint = *random_model.checkpoint();
  const ModelConfig& config = checkpoint.config();
  auto stream = cuda::Stream::Create();
  ASSERT_TRUE(stream.ok());
  cuda::CudaOptions options;
  options.precision = precision;
  auto model = LanguageModel::Create(checkpoint, options, stream->get());
  ASSERT_TRUE(model.ok()) << model.status().message();
  constexpr size_t kEntries = size_t{cuda::kRing} * cuda::kMaxRows;
  auto steps = PinnedMemory::AllocateZeroed(kEntries * sizeof(cuda::FrameRow));
  auto results = PinnedMemory::AllocateZeroed(kEntries * sizeof(cuda::FrameRowResult));
  ASSERT_TRUE(steps.ok() && results.ok());

  std::mt19937 random(5);
  const Prompt prompt = RandomPrompt(config, 30, random);
  const auto start = (*model)->Begin(0, prompt, GenerationSettings(), 9);
  ASSERT_TRUE(start.ok()) << start.status().message();
  cpu::ThreadPool pool(4);
  cpu::Embedder embedder(checkpoint.talker(), checkpoint.predictor(), pool);
  cpu::Talker talker(config.talker, checkpoint.talker(), pool);
  cpu::Predictor predictor(config.predictor, checkpoint.predictor(), embedder, pool);
  cpu::KvCache cache = talker.NewCache();
  const auto width = static_cast<size_t>(talker.hidden_size());
  std::vector<float> hidden(width);
  std::vector<float> logits(static_cast<size_t>(talker.vocab_size()));
  std::vector<float> inputs(prompt.rows.size() * width);
  embedder.Embed(prompt.rows, prompt.x_vector, inputs.data());
  talker.Prefill(&cache, inputs, hidden.data(), logits.data());

  double worst = 0;
  const auto groups = static_cast<size_t>(config.talker.num_code_groups);
  for (int frame = 0; frame < 200; ++frame) {
    const auto entry = static_cast<size_t>(frame % cuda::kRing) * cuda::kMaxRows;
    const int text = frame % 11;
    steps->as<cuda::FrameRow>()[entry] = {frame == 0 ? cuda::RowKind::kFirst : cuda::RowKind::kNext, 0, text};
    const int64_t position = static_cast<int64_t>(prompt.rows.size()) - 1 + frame;
    ASSERT_TRUE((*model)->sequences().Extend(0, position).ok());
    ASSERT_TRUE((*model)
                    ->EnqueueFrame(frame == 0 ? *start : cuda::FrameStart::kInput, 1,
                                   (*model)->graph().SplitBucket(position + 1), steps->as<const cuda::FrameRow>(),
                                   results->as<cuda::FrameRowResult>())
                    .ok());
    ASSERT_TRUE(stream->Synchronize().ok());
    const cuda::FrameRowResult& result = results->as<cuda::FrameRowResult>()[entry];
    ASSERT_EQ(result.end, EndReason::kNone);
    const auto read = [&](int group) {
      std::vector<float> values(static_cast<size_t>((*model)->network().head(group).outputs));
      EXPECT_EQ(cudaMemcpy(values.data(), (*model)->buffers().logits((*model)->network(), group, cuda::kMaxRows),
                           values.size() * 4, cudaMemcpyDeviceToHost),
                cudaSuccess);
      return values;
    };
    if (frame > 0) {
      std::vector<float> input(width);
      cpu::KvCache* const caches[] = {&cache};
      PromptRow row;
      row.text_id = text;
      row.codes.assign(
          results->as<cuda::FrameRowResult>()[static_cast<size_t>((frame - 1) % cuda::kRing) * cuda::kMaxRows].codes,
          results->as<cuda::FrameRowResult>()[static_cast<size_t>((frame - 1) % cuda::kRing) * cuda::kMaxRows].codes +
              groups);
      embedder.Embed({&row, 1}, {}, input.data());
      talker.Step(caches, input.data(), logits.data());
      hidden = input;
    }
    worst = std::max(worst, RelativeError(read(0).data(), logits));
    std::vector<int32_t> codes(groups);
    codes[0] = result.codes[0];
    predictor.Predict(
        hidden,
        [&](size_t, int64_t group, std::span<float> expected) {
          worst = std::max(worst, RelativeError(read(static_cast<int>(group)).data(),
                                                std::vector<float>(expected.begin(), expected.end())));
          return static_cast<int32_t>(result.codes[group]);
        },
        codes);
  }
  // In BF16 the largest of 3200 vectors of logits. Activations are rounded to 8 bits before every product, a
  // relative 2^-9 each; through six layers that makes a percent or two.
  EXPECT_LT(worst, precision == Precision::kF32 ? 1e-5 : 0.03);
  RecordProperty("worst_relative_error", std::to_string(worst));
  std::printf("worst relative error of a vector of logits: %g\n", worst);
}

INSTANTIATE_TEST_SUITE_P(Models, TeacherForced,
                         ::testing::Combine(::testing::Bool(), ::testing::Values(Precision::kBF16, Precision::kF32)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param) ? "large" : "small") +
                                  (std::get<1>(test.param) == Precision::kF32 ? "_f32" : "_bf16");
                         });

}  // namespace
}  // namespace qtts
