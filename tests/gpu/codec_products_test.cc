// SPDX-License-Identifier: LGPL-2.1-or-later
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "codec/gemm.h"
#include "codec/gemm_choice.h"
#include "codec/staged_plan.h"
#include "codec/steps.h"
#include "gpu/random_codec.h"
#include "runtime/arena.h"
#include "runtime/device_memory.h"

// Each product of the codec in every kernel that can take it, on the same operands: the same bits.
namespace qtts {
namespace {

using cuda::DeviceMemory;
using cuda::codec::Batch;
using cuda::codec::GemmArgs;
using cuda::codec::GemmForm;
using cuda::codec::GemmStep;
using cuda::codec::GemmTile;
using cuda::codec::Planes;
using testing::CodecShape;
using testing::RandomCodec;

constexpr uint32_t kSeed = 20261124;
constexpr size_t kIdleRow = 17;
constexpr int kPoison = 0x55;

void ExpectCuda(cudaError_t error) { ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }

// A piece of device memory, and what lies there before each run.
struct Operand {
  void* data = nullptr;
  std::vector<uint8_t> bytes;

  void Put() const { ExpectCuda(cudaMemcpy(data, bytes.data(), bytes.size(), cudaMemcpyHostToDevice)); }
};

// Memory that a product writes: rows of bytes, `pitch` apart.
struct Result2D {
  void* data = nullptr;
  size_t pitch = 0, width = 0, height = 0;

  bool empty() const { return width == 0; }
  void Poison() const {
    if (!empty()) ExpectCuda(cudaMemset2D(data, pitch, kPoison, width, height));
  }
  std::vector<uint8_t> Get() const {
    std::vector<uint8_t> bytes(width * height);
    if (!empty()) ExpectCuda(cudaMemcpy2D(bytes.data(), width, data, pitch, width, height, cudaMemcpyDeviceToHost));
    return bytes;
  }
};

class CodecProductsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    const cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess || devices == 0) {
      (void)cudaGetLastError();
      GTEST_SKIP() << "no CUDA device: " << cudaGetErrorString(error);
    }
  }

  // F16 of either sign with magnitudes from 1/32 to 1.
  std::vector<uint8_t> Halves(size_t count) {
    std::vector<uint8_t> bytes(count * sizeof(uint16_t));
    auto* const halves = reinterpret_cast<uint16_t*>(bytes.data());
    for (size_t i = 0; i < count; ++i) {
      const auto bits = static_cast<uint32_t>(random_());
      halves[i] = static_cast<uint16_t>((bits & 0x83ffU) | (10 + (bits >> 16) % 5) << 10);
    }
    return bytes;
  }
  // F32 from -1 to 1.
  std::vector<uint8_t> Floats(size_t count) {
    std::vector<uint8_t> bytes(count * sizeof(float));
    auto* const floats = reinterpret_cast<float*>(bytes.data());
    for (size_t i = 0; i < count; ++i) floats[i] = static_cast<float>(random_()) / 2147483648.0F - 1;
    return bytes;
  }

  // Products, residual units in one kernel, and linear layers with a kernel of their own.
  struct Compared {
    int products = 0, units = 0, linear = 0;
  };
  // Compares the kernels of each product of a frame of `streams` that has one for many columns, and of each residual
  // unit and linear layer, as on a device with these traits; returns their number.
  Compared CompareTiles(const RandomCodec& codec, cuda::CodecPrecision precision, int streams,
                        const cuda::codec::DeviceTraits& traits);

  // Returns what a product reads, random, but for its weights and the streams' past.
  std::vector<Operand> InputsOf(const GemmArgs& args) {
    const auto columns = static_cast<size_t>(args.geometry.columns);
    const auto channels = static_cast<size_t>(args.x.channels);
    const cuda::codec::GemmEpilogue& epilogue = args.epilogue;
    std::vector<Operand> inputs;
    // Both planes, which lie one behind the other.
    inputs.push_back({const_cast<void*>(args.x.data), Halves(2 * columns * channels)});
    if (epilogue.rms_input != nullptr) {
      inputs.push_back({const_cast<float*>(epilogue.rms_input), Floats(columns * channels)});
    }
    if (epilogue.residual != nullptr) inputs.push_back(ResidualOf(args));
    return inputs;
  }
  Operand ResidualOf(const GemmArgs& args) {
    const size_t outputs = static_cast<size_t>(args.geometry.tiles) * cuda::codec::kTileRows;
    return {const_cast<float*>(args.epilogue.residual), Floats(static_cast<size_t>(args.geometry.columns) * outputs)};
  }

  std::mt19937 random_{kSeed};
};

struct Card {
  std::string name;
  cuda::codec::DeviceTraits traits;
};

constexpr size_t kMaxCards = 5;
// The device, and what it is like without the instructions of Hopper and with less shared memory. They differ in their
// kernels, in the cut of sums and in how whole tiles share out shared memory.
std::vector<Card> Cards() {
  cuda::codec::DeviceTraits own;
  ExpectCuda(cuda::codec::PrepareKernels(&own));
  std::vector<Card> cards = {{"the device", own}};
  cuda::codec::DeviceTraits other = own;
  other.warpgroups = false;
  ExpectCuda(cuda::codec::PrepareStagedGemms(other));
  ExpectCuda(cuda::codec::PrepareStagedUnits(other));
  if (own.clusters) cards.push_back({"clusters without warpgroups", other});
  other.clusters = false;
  for (const size_t kib : {227, 163, 99}) {
    if (kib << 10 > own.shared_bytes) continue;
    other.shared_bytes = kib << 10;
    cards.push_back({std::to_string(kib) + " KiB without clusters", other});
  }
  return cards;
}

// Returns what a product writes: y, the next operator's input and the streams' past of it.
std::array<Result2D, 3> ResultsOf(const GemmArgs& args, std::byte* states, size_t state_bytes, size_t streams) {
  const cuda::codec::GemmEpilogue& epilogue = args.epilogue;
  const cuda::codec::Sink& out = epilogue.out;
  const auto columns = static_cast<size_t>(args.geometry.columns);
  const size_t outputs = static_cast<size_t>(args.geometry.tiles) * cuda::codec::kTileRows;
  const bool gated = epilogue.activation == cuda::codec::Activation::kSwiGlu;
  const size_t element = out.planes == Planes::kHalf ? 2 : 4;
  const auto channels = static_cast<size_t>(out.channels);
  const size_t y_bytes = epilogue.y == nullptr ? 0 : columns * (gated ? outputs / 2 : outputs) * sizeof(float);
  const size_t out_bytes = out.data == nullptr ? 0 : streams * static_cast<size_t>(out.rows) * channels * element;
  const size_t past_bytes = out.data == nullptr ? 0 : static_cast<size_t>(out.ring * out.keep) * channels * element;
  return {{{epilogue.y, y_bytes, y_bytes, 1},
           {out.data, out_bytes, out_bytes, 1},
           {states + out.history, state_bytes, past_bytes, streams}}};
}

// Runs `launch` on inputs and poisoned results, and returns the results.
template <typename Launch>
std::vector<std::vector<uint8_t>> RunOn(const std::vector<Operand>& inputs, const std::array<Result2D, 3>& results,
                                        const Launch& launch) {
  for (const Result2D& result : results) result.Poison();
  for (const Operand& operand : inputs) operand.Put();  // a residual may lie where y does
  launch();
  ExpectCuda(cudaDeviceSynchronize());
  std::vector<std::vector<uint8_t>> got;
  for (const Result2D& result : results) got.push_back(result.Get());
  return got;
}

void ExpectSame(const std::vector<std::vector<uint8_t>>& got, const std::vector<std::vector<uint8_t>>& expected) {
  EXPECT_TRUE(got[0] == expected[0]) << "y";
  EXPECT_TRUE(got[1] == expected[1]) << "the next operator's input";
  EXPECT_TRUE(got[2] == expected[2]) << "the streams' past of it";
}

CodecProductsTest::Compared CodecProductsTest::CompareTiles(const RandomCodec& codec, cuda::CodecPrecision precision,
                                                            int streams, const cuda::codec::DeviceTraits& traits) {
  cuda::Arena memory;
  std::vector<cuda::codec::Step> steps;
  cuda::codec::Builder builder(codec.config(), codec.weights(), traits, precision, streams, streams, &memory, &steps);
  const Status built = builder.Build();
  EXPECT_TRUE(built.ok()) << built.message();
  if (!built.ok()) return {};

  // Streams with different pasts: the first frame, the second, and far into the ring of frames.
  const auto count = static_cast<size_t>(streams);
  auto state_memory = DeviceMemory::Allocate(count * builder.state_bytes());
  EXPECT_TRUE(state_memory.ok()) << state_memory.status().message();
  if (!state_memory.ok()) return {};
  Operand{state_memory->data(), Halves(count * builder.state_bytes() / sizeof(uint16_t))}.Put();
  std::vector<std::byte*> places;
  std::vector<int32_t> frames;
  const size_t idle_row = count > kIdleRow ? kIdleRow : count > 1 ? count / 2 : count;
  for (size_t i = 0; i < count; ++i) {
    places.push_back(state_memory->as<std::byte>() + i * builder.state_bytes());
    constexpr int32_t kFrames[] = {0, 1, 2, 100, 37};
    frames.push_back(i == idle_row ? -1 : kFrames[i % std::size(kFrames)]);
  }
  const auto& first = std::get<cuda::codec::DequantizeArgs>(steps.front());
  ExpectCuda(cudaMemcpy(first.states, places.data(), count * sizeof(places[0]), cudaMemcpyHostToDevice));
  ExpectCuda(cudaMemcpy(first.frames, frames.data(), count * sizeof(frames[0]), cudaMemcpyHostToDevice));

  Compared compared;
  std::set<std::array<int64_t, 8>> seen;
  const auto results_of = [&](const GemmArgs& args) {
    return ResultsOf(args, state_memory->as<std::byte>(), builder.state_bytes(), count);
  };
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto* const gemm = std::get_if<GemmStep>(&steps[i]);
    if (gemm == nullptr) continue;
    const auto args_of = [&](const GemmStep& step) {
      GemmArgs args = step.args;
      args.batch = {first.states, first.frames};
      args.geometry.columns = streams * args.x.rows;
      return args;
    };
    const GemmArgs args = args_of(*gemm);
    const auto& [batch, x, geometry, weights, epilogue] = args;
    const std::vector<GemmTile> tiles = PossibleTiles(args, gemm->x_planes, traits);
    GemmTile unit_tile;
    // Streams of few columns have more columns of the past in a tile than fit.
    if (gemm->unit.first != nullptr &&
        UnitTakes(args, args_of(std::get<GemmStep>(steps[i + 1])), gemm->unit, &unit_tile, traits)) {
      const GemmArgs second = args_of(std::get<GemmStep>(steps[i + 1]));
      SCOPED_TRACE("a residual unit of dilation " + std::to_string(geometry.dilation));
      ++compared.units;
      std::vector<Operand> inputs = InputsOf(args);
      inputs.push_back(ResidualOf(second));
      const std::array<Result2D, 3> results = results_of(second);
      const std::vector<std::vector<uint8_t>> expected = RunOn(inputs, results, [&] {
        ExpectCuda(LaunchGemm(args, gemm->x_planes, tiles.front(), traits, nullptr));
        const GemmTile tile = PossibleTiles(second, gemm->x_planes, traits).front();
        ExpectCuda(LaunchGemm(second, gemm->x_planes, tile, traits, nullptr));
      });
      ExpectSame(RunOn(inputs, results, [&] { ExpectCuda(LaunchUnit(args, second, gemm->unit, traits, nullptr)); }),
                 expected);
    }
    if (cuda::codec::LinearTakes(args, gemm->x_planes)) {
      SCOPED_TRACE("a linear layer of " + std::to_string(geometry.tiles * cuda::codec::kTileRows) + " outputs");
      ++compared.linear;
      const std::vector<Operand> inputs = InputsOf(args);
      const std::array<Result2D, 3> results = results_of(args);
      const GemmTile wide = {GemmForm::kWide, 32, cuda::codec::kWideTiles};
      const std::vector<std::vector<uint8_t>> expected =
          RunOn(inputs, results, [&] { ExpectCuda(LaunchGemm(args, gemm->x_planes, wide, traits, nullptr)); });
      ExpectSame(RunOn(inputs, results, [&] { ExpectCuda(LaunchLinearGemm(args, gemm->x_planes, traits, nullptr)); }),
                 expected);
    }
    const bool has_many = std::any_of(tiles.begin(), tiles.end(), [](const GemmTile& t) {
      return t.form == GemmForm::kWarpgroup || t.form == GemmForm::kStaged;
    });
    // Only the first of layers that are alike.
    const std::array<int64_t, 8> kind = {geometry.columns,
                                         geometry.tiles,
                                         geometry.chunks,
                                         geometry.taps,
                                         geometry.dilation,
                                         static_cast<int64_t>(epilogue.activation),
                                         epilogue.residual != nullptr,
                                         epilogue.rms_input != nullptr};
    if (!has_many || !seen.insert(kind).second) continue;
    ++compared.products;

    const std::vector<Operand> inputs = InputsOf(args);
    const std::array<Result2D, 3> results = results_of(args);
    std::vector<std::vector<uint8_t>> expected;
    for (const GemmTile& tile : tiles) {
      // Only one of the kernels for few columns.
      if (!expected.empty() && (tile.form == GemmForm::kNarrow || tile.form == GemmForm::kCluster)) continue;
      SCOPED_TRACE(std::to_string(geometry.tiles * cuda::codec::kTileRows) + " outputs of " +
                   std::to_string(geometry.chunks * cuda::codec::kChannelBlock) + " inputs, " +
                   std::to_string(geometry.taps) + " taps, segments " + std::to_string(geometry.segments) +
                   ", kernel " + std::to_string(static_cast<int>(tile.form)) + " of " + std::to_string(tile.columns) +
                   " columns and " + std::to_string(tile.tiles) + " tiles");
      std::vector<std::vector<uint8_t>> got =
          RunOn(inputs, results, [&] { ExpectCuda(LaunchGemm(args, gemm->x_planes, tile, traits, nullptr)); });
      if (expected.empty()) {
        expected = std::move(got);
        continue;
      }
      ExpectSame(got, expected);
    }
  }
  return compared;
}

// Whether cards of these traits compute residual units in one kernel.
bool HasUnits(const cuda::codec::DeviceTraits& traits) {
  return traits.warpgroups || traits.shared_bytes >= cuda::codec::kStagedUnitSharedBytes;
}

// One of Cards(), and a precision.
class CodecProductsOfCardTest : public CodecProductsTest,
                                public ::testing::WithParamInterface<std::tuple<size_t, cuda::CodecPrecision>> {};

// The released widths, columns that fill no last tile.
TEST_P(CodecProductsOfCardTest, AllKernelsGiveTheSameBits) {
  const auto& [index, precision] = GetParam();
  const std::vector<Card> cards = Cards();
  if (index >= cards.size()) GTEST_SKIP() << "the device can be taken for " << cards.size() << " cards only";
  const Card& card = cards[index];
  CodecShape shape = CodecShape::Released();
  shape.layers = 1;
  const RandomCodec codec(shape, kSeed);
  SCOPED_TRACE(card.name);
  const Compared compared = CompareTiles(codec, precision, 131, card.traits);
  std::printf("  %s: %d products have kernels for many columns, %d residual units one of their own\n",
              card.name.c_str(), compared.products, compared.units);
  // The pre-transformer's five, six of upsampling, the first convolution, and the decoder blocks'.
  EXPECT_GE(compared.products, 12);
  // Those of the last block.
  EXPECT_EQ(compared.units, HasUnits(card.traits) ? 3 : 0);
}

INSTANTIATE_TEST_SUITE_P(Cards, CodecProductsOfCardTest,
                         ::testing::Combine(::testing::Range(size_t{0}, kMaxCards),
                                            ::testing::Values(cuda::CodecPrecision::kFast,
                                                              cuda::CodecPrecision::kExact)),
                         [](const auto& of) {
                           const bool exact = std::get<1>(of.param) == cuda::CodecPrecision::kExact;
                           return "card" + std::to_string(std::get<0>(of.param)) + (exact ? "_exact" : "_fast");
                         });

// Any number of columns that the kernel takes, one of them idle, and both numbers of segments.
TEST_F(CodecProductsTest, TheKernelOfLinearLayersGivesTheBitsOfOthers) {
  CodecShape shape = CodecShape::Released();
  shape.layers = 1;
  const RandomCodec codec(shape, kSeed);
  for (const auto precision : {cuda::CodecPrecision::kFast, cuda::CodecPrecision::kExact}) {
    for (const int streams : {1, 4, 8}) {
      SCOPED_TRACE(std::to_string(streams) + " streams");
      // Queries, keys and values, the attention's output, gate and up, down.
      EXPECT_EQ(CompareTiles(codec, precision, streams, Cards().front().traits).linear, 4);
    }
    EXPECT_EQ(CompareTiles(codec, precision, 9, Cards().front().traits).linear, 0);
  }
}

// Widths for each shape of tile and for residual units in one kernel, with minimal work for compute-sanitizer.
TEST_F(CodecProductsTest, SmallForTheSanitizer) {
  CodecShape shape;
  shape.codebook_dim = 64;
  shape.latent = 128;
  shape.hidden = 128;
  shape.intermediate = 192;
  shape.layers = 1;
  shape.heads = 2;
  shape.kv_heads = 1;
  shape.head_dim = 32;
  shape.decoder_dim = 384;
  const RandomCodec codec(shape, kSeed);
  const std::vector<Card> cards = Cards();
  for (const auto precision : {cuda::CodecPrecision::kFast, cuda::CodecPrecision::kExact}) {
    // All kernels: the device's own, and those of the card that is most unlike it.
    for (const Card& card : {cards.front(), cards.back()}) {
      SCOPED_TRACE(card.name);
      const Compared compared = CompareTiles(codec, precision, 128, card.traits);
      EXPECT_GT(compared.products, 0);
      EXPECT_EQ(compared.units > 0, HasUnits(card.traits));
    }
  }
}

}  // namespace
}  // namespace qtts
