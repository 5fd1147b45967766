// SPDX-License-Identifier: LGPL-2.1-or-later
#include "runtime/device_numbers.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/log.h"
#include "codec/gemm.h"
#include "codec/gemm_choice.h"
#include "codec/gemm_cut.h"
#include "codec/tile_table.h"
#include "fake_cuda/fake_cuda.h"
#include "gemm/gemm.h"
#include "runtime/device_table.h"

// The tables of measured numbers. They may change times, never results.
namespace qtts {
namespace {

using cuda::DeviceNumbers;
using cuda::GemmKind;
using cuda::GemmShape;
using cuda::kH200Numbers;
using cuda::NumbersOf;
using cuda::codec::GemmArgs;
using cuda::codec::GemmForm;
using cuda::codec::GemmTile;
using cuda::codec::Planes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string>& Lines() {
  static auto* const lines = new std::vector<std::string>();
  return *lines;
}
constexpr LogSink kSink = {[](LogLevel level) { return level == LogLevel::kInfo; },
                           [](LogLevel, const char* line) { Lines().emplace_back(line); }};

class DeviceNumbersTest : public ::testing::Test {
 protected:
  DeviceNumbersTest() {
    fake_cuda::Reset();
    Lines().clear();
    SetLogSink(&kSink);
  }
  ~DeviceNumbersTest() override {
    SetLogSink(nullptr);
    fake_cuda::Reset();
  }
};

// The shape of a language model's product. `pieces`: its weights lie in pieces, too.
GemmShape ShapeOf(GemmKind kind, int outputs, int columns, int rows, const DeviceNumbers& numbers,
                  bool pieces = false) {
  cuda::Matrix matrix;
  matrix.kind = kind;
  matrix.outputs = outputs;
  matrix.columns = columns;
  char normed = 0;
  if (pieces) matrix.swizzled = &normed;
  cuda::GemmRows r;
  r.rows = rows;
  r.normed.x = &normed;
  r.normed.columns = columns;
  return ChooseShape(matrix, r, numbers.products);
}

// A product of the codec in two halves with `columns` columns; a frame has `rows` rows.
GemmArgs CodecProduct(int rows, int columns, int outputs, int channels, int taps) {
  GemmArgs args;
  args.x.rows = rows;
  args.x.channels = channels;
  args.weights.planes = 2;
  args.geometry.columns = columns;
  args.geometry.taps = taps;
  args.geometry.tiles = outputs / cuda::codec::kTileRows;
  args.geometry.chunks = taps * channels / cuda::codec::kChannelBlock;
  return args;
}

cuda::codec::DeviceTraits Traits(int processors) { return {processors, size_t{227} << 10, true, true}; }

TEST_F(DeviceNumbersTest, TheCardsThatWereMeasuredHaveOneTable) {
  for (const char* const card : {"NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe"}) {
    const DeviceNumbers numbers = NumbersOf(card, 114);
    EXPECT_TRUE(numbers.measured) << card;
    EXPECT_EQ(numbers.products.blocks_at_once, 264) << card;
    EXPECT_EQ(numbers.products.processors, 114) << card;
    EXPECT_EQ(numbers.persistent.wide_talker.in_flight, 2) << card;
  }
}

TEST_F(DeviceNumbersTest, AnyOtherHasSafeOnesByItsNumberOfSms) {
  const DeviceNumbers numbers = NumbersOf("NVIDIA A100-SXM4-40GB", 108);
  EXPECT_FALSE(numbers.measured);
  EXPECT_EQ(numbers.products.processors, 108);
  EXPECT_EQ(numbers.products.blocks_at_once, 216);
  EXPECT_EQ(numbers.products.clusters_at_once, 13);
  EXPECT_EQ(numbers.attention.blocks_at_once, 108);
  EXPECT_EQ(numbers.sampling.rows_of_many_threads, 108);
  for (const auto& pace : {numbers.persistent.narrow_talker, numbers.persistent.wide_talker}) EXPECT_EQ(pace.ahead, 0);
  EXPECT_GT(NumbersOf("a card of one SM", 1).products.clusters_at_once, 0);
}

TEST_F(DeviceNumbersTest, ACardThatNobodyMeasuredIsInTheLogOnce) {
  fake_cuda::Device card;
  card.name = "A card of " + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name());
  fake_cuda::Device measured;
  measured.name = "NVIDIA H200";
  fake_cuda::Reset({card, measured});
  for (int time = 0; time < 2; ++time) {
    for (const int device : {0, 1}) {
      EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
      EXPECT_TRUE(cuda::NumbersOfDevice().ok());
    }
  }
  EXPECT_THAT(Lines(), ElementsAre(HasSubstr("no measurements of " + card.name)));
}

// Activations between two products are swizzled where the next one reads them.
TEST_F(DeviceNumbersTest, TilesMultiplyManyRowsWhereTheyAreAskedForAndCan) {
  DeviceNumbers numbers = kH200Numbers;
  EXPECT_EQ(ShapeOf(GemmKind::kNormStore, 4096, 1024, 1024, numbers, true), GemmShape::kWide64) << "not asked for";
  numbers.products.many_rows = cuda::ManyRowsProducts::kWarpgroup;
  EXPECT_EQ(ShapeOf(GemmKind::kNormStore, 4096, 1024, 1024, numbers), GemmShape::kWide64) << "no swizzled weights";
  struct Case {
    GemmKind kind;
    int outputs, columns, rows;
    GemmShape shape;
  };
  for (const Case& c : {Case{GemmKind::kNormStore, 4096, 1024, 1024, GemmShape::kTiles128},
                        {GemmKind::kNormStore, 4096, 1024, 64, GemmShape::kTiles64},
                        {GemmKind::kNormGated, 3072, 1024, 128, GemmShape::kTiles64},
                        {GemmKind::kNormGated, 3072, 1024, 256, GemmShape::kTiles128},
                        {GemmKind::kAdd, 1024, 3072, 1024, GemmShape::kTiles64},
                        {GemmKind::kAdd, 1024, 3072, 256, GemmShape::kTiles64},
                        {GemmKind::kAdd, 1024, 3072, 128, GemmShape::kTiles64},
                        {GemmKind::kAdd, 1024, 3072, 96, GemmShape::kTiles64},
                        {GemmKind::kAdd, 1024, 3072, 64, GemmShape::kCluster},
                        {GemmKind::kAdd, 2048, 6144, 64, GemmShape::kWide16},
                        {GemmKind::kAdd, 1024, 3072, 56, GemmShape::kCluster},
                        {GemmKind::kNormStore, 4096, 1024, 56, GemmShape::kWide64}}) {
    SCOPED_TRACE(std::to_string(c.outputs) + " x " + std::to_string(c.columns) + ", " + std::to_string(c.rows));
    EXPECT_EQ(ShapeOf(c.kind, c.outputs, c.columns, c.rows, numbers, true), c.shape);
    cuda::Matrix matrix;
    matrix.kind = c.kind;
    matrix.outputs = c.outputs;
    matrix.columns = c.columns;
    EXPECT_FALSE(TakesSwizzled(matrix, c.rows, numbers.products)) << "it has none";
    matrix.swizzled = &matrix;
    EXPECT_EQ(TakesSwizzled(matrix, c.rows, numbers.products), c.shape >= GemmShape::kTiles128);
    EXPECT_FALSE(TakesSwizzled(matrix, c.rows, kH200Numbers.products)) << "not asked for";
    EXPECT_FALSE(TakesSwizzled(matrix, c.rows + 1, numbers.products)) << "no room for whole groups of rows";
  }
  EXPECT_EQ(ShapeOf(GemmKind::kNormStore, 4096, 1056, 1024, numbers, true), GemmShape::kWide64)
      << "shares of odd sizes";
  EXPECT_EQ(ShapeOf(GemmKind::kNormStore, 4100, 1024, 1024, numbers, true), GemmShape::kWide64) << "parts of tiles";
  fake_cuda::Device ampere;
  ampere.major = 8;
  fake_cuda::Reset({ampere});
  EXPECT_EQ(ShapeOf(GemmKind::kNormStore, 4096, 1024, 1024, numbers, true), GemmShape::kWide64)
      << "no such instruction";
}

// Rows in pieces that no tile would read are an error of the launch, and nothing is computed.
TEST_F(DeviceNumbersTest, RowsInPiecesForAnotherKernelAreAnError) {
  cuda::Matrix matrix;
  matrix.kind = GemmKind::kAdd;
  matrix.outputs = 1024;
  matrix.columns = 2048;
  matrix.swizzled = &matrix;
  cuda::GemmRows r;
  r.rows = 8;
  r.x_swizzled = true;
  const cuda::Launcher launch(nullptr, &kH200Numbers);
  Gemm(launch, cuda::Precision::kBF16, matrix, r);
  EXPECT_EQ(launch.error, cudaErrorInvalidValue);
}

TEST_F(DeviceNumbersTest, TheChoiceOfAnH200Stays) {
  // Measured with kernels-bench in 2026.
  EXPECT_EQ(ShapeOf(GemmKind::kNormStore, 4096, 1024, 1, kH200Numbers), GemmShape::kFew);
  EXPECT_EQ(ShapeOf(GemmKind::kNormStore, 4096, 1024, 8, kH200Numbers), GemmShape::kFew);
  EXPECT_EQ(ShapeOf(GemmKind::kNormStore, 4096, 1024, 16, kH200Numbers), GemmShape::kWide16);
  EXPECT_EQ(ShapeOf(GemmKind::kNormStore, 4096, 2048, 64, kH200Numbers), GemmShape::kWide64);
  EXPECT_EQ(ShapeOf(GemmKind::kNormGated, 3072, 1024, 32, kH200Numbers), GemmShape::kWide32);
  EXPECT_EQ(ShapeOf(GemmKind::kAdd, 2048, 6144, 24, kH200Numbers), GemmShape::kCluster);
}

// A product of the codec splits its sum as its layer says, never by a measured number: a split changes bits.
TEST_F(DeviceNumbersTest, NoTableCutsTheCodecsSums) {
  const GemmArgs layers[] = {CodecProduct(1, 1, 3072, 1024, 1), CodecProduct(8, 8, 1536, 768, 7),
                             CodecProduct(480, 480, 192, 192, 7)};
  for (const GemmArgs& args : layers) {
    const auto cut = ChooseCut(args, true, Traits(132));
    for (const int processors : {20, 108, 170}) {
      const auto other = ChooseCut(args, true, Traits(processors));
      EXPECT_EQ(other.groups, cut.groups);
      EXPECT_EQ(other.segments, cut.segments);
    }
  }
  EXPECT_EQ(ChooseCut(layers[1], true, Traits(132)).groups, 8);
  EXPECT_EQ(ChooseCut(layers[2], true, Traits(132)).groups, 2);
  EXPECT_EQ(ChooseCut(layers[0], false, Traits(132)).segments, cuda::codec::kMaxSegments);
  // Without clusters a warp takes a group, of two chunks or more.
  cuda::codec::DeviceTraits no_clusters = Traits(108);
  no_clusters.clusters = false;
  EXPECT_EQ(ChooseCut(layers[1], true, no_clusters).groups, 12);
  EXPECT_EQ(ChooseCut(layers[2], true, no_clusters).groups, 6);
  EXPECT_EQ(ChooseCut(layers[2], true, no_clusters).segments, 6);
  EXPECT_EQ(ChooseCut(CodecProduct(1920, 1920, 96, 96, 1), true, no_clusters).groups, 1);
}

// The decoder blocks' products of the released codec go to warpgroups where many streams are decoded, and not for one.
// Each fits the shared memory of a block of 9.0.
TEST_F(DeviceNumbersTest, TheCodecsManyColumnsGoToWarpgroups) {
  struct Layer {
    int rows, outputs, channels, taps, dilation;
  };
  cuda::codec::DeviceTraits device = Traits(132);
  device.warpgroups = true;
  char packed = 0;
  for (const Layer& layer : {Layer{32, 768, 768, 7, 9}, Layer{32, 768, 768, 7, 1}, Layer{32, 1920, 768, 2, 1},
                             Layer{160, 384, 384, 7, 9}, Layer{160, 768, 384, 2, 1}, Layer{640, 192, 192, 7, 9},
                             Layer{640, 192, 192, 1, 1}, Layer{640, 288, 192, 2, 1}}) {
    SCOPED_TRACE(std::to_string(layer.channels) + " channels to " + std::to_string(layer.outputs));
    for (const Planes planes : {Planes::kHalf, Planes::kTwoHalves}) {
      GemmArgs args = CodecProduct(layer.rows, layer.rows, layer.outputs, layer.channels, layer.taps);
      args.geometry.dilation = layer.dilation;
      args.weights.planes = planes == Planes::kHalf ? 1 : 2;
      const auto cut = ChooseCut(args, true, device);
      args.geometry.groups = args.geometry.segments = cut.groups;
      args.geometry.group_blocks = layer.channels / cuda::codec::kChannelBlock / cut.groups;
      EXPECT_EQ(cuda::codec::WarpgroupOutputs(args.geometry), layer.outputs % 192 == 0 ? 192 : 96);
      const auto choose = [&](int streams) {
        args.geometry.columns = streams * layer.rows;
        return ChooseTile(args, planes, device, TableFor(device, kH200Numbers.codec), /*beside=*/false).form;
      };
      EXPECT_NE(choose(256), GemmForm::kWarpgroup) << "not packed";
      args.weights.warpgroup = &packed;
      EXPECT_EQ(choose(256), GemmForm::kWarpgroup);
      EXPECT_NE(choose(1), GemmForm::kWarpgroup);
      device.shared_bytes = size_t{48} << 10;
      EXPECT_NE(choose(256), GemmForm::kWarpgroup) << "no memory";
      device.shared_bytes = size_t{227} << 10;
      args.epilogue.activation = cuda::codec::Activation::kGelu;
      EXPECT_NE(choose(256), GemmForm::kWarpgroup) << "not plain";
    }
  }
  // No tile shape: segments of different lengths, or a number of outputs that no tile covers.
  cuda::codec::GemmGeometry geometry = CodecProduct(4, 4, 6144, 1536, 2).geometry;
  geometry.segments = 7;
  EXPECT_EQ(cuda::codec::WarpgroupOutputs(geometry), 0);
  geometry = CodecProduct(64, 64, 80, 96, 7).geometry;
  geometry.group_blocks = 3;
  EXPECT_EQ(cuda::codec::WarpgroupOutputs(geometry), 0);
}

// Those before the decoder blocks, and the first of the blocks, too: their segments are no groups of channels, and
// their epilogues of all kinds.
TEST_F(DeviceNumbersTest, TheCodecsFirstProductsOfManyStreamsGoToWarpgroups) {
  using cuda::codec::Activation;
  struct Layer {
    int rows, outputs, channels, taps;
    bool normalised, residual;
    Activation activation;
  };
  cuda::codec::DeviceTraits device = Traits(132);
  device.warpgroups = true;
  char packed = 0;
  for (const Layer& layer :
       {Layer{1, 512, 512, 3, false, false, Activation::kNone}, Layer{1, 3072, 512, 1, true, false, Activation::kNone},
        Layer{1, 512, 1024, 1, false, true, Activation::kNone},
        Layer{1, 2048, 512, 1, true, false, Activation::kSwiGlu},
        Layer{2, 2048, 1024, 1, false, false, Activation::kNone},
        Layer{2, 4096, 1024, 1, false, false, Activation::kGelu},
        Layer{2, 1024, 4096, 1, false, true, Activation::kNone},
        Layer{4, 4096, 1024, 1, false, false, Activation::kGelu},
        Layer{4, 1024, 4096, 1, false, true, Activation::kNone},
        Layer{4, 1536, 1024, 7, false, false, Activation::kNone},
        Layer{4, 6144, 1536, 2, false, false, Activation::kNone}}) {
    SCOPED_TRACE(std::to_string(layer.taps * layer.channels) + " inputs to " + std::to_string(layer.outputs));
    for (const Planes planes : {Planes::kHalf, Planes::kTwoHalves}) {
      GemmArgs args = CodecProduct(layer.rows, layer.rows, layer.outputs, layer.channels, layer.taps);
      args.weights.planes = planes == Planes::kHalf ? 1 : 2;
      args.weights.warpgroup = &packed;
      args.epilogue.activation = layer.activation;
      const float some = 0;
      if (layer.normalised) args.epilogue.rms_input = &some;
      if (layer.residual) args.epilogue.residual = args.epilogue.scale = &some;
      const auto cut = ChooseCut(args, false, device);
      args.geometry.segments = cut.segments;
      args.geometry.group_blocks = layer.channels / cuda::codec::kChannelBlock;
      EXPECT_EQ(args.geometry.chunks % cut.segments, 0);
      EXPECT_NE(cuda::codec::WarpgroupOutputs(args.geometry), 0);
      const auto choose = [&](int streams) {
        args.geometry.columns = streams * layer.rows;
        return ChooseTile(args, planes, device, TableFor(device, kH200Numbers.codec), /*beside=*/false).form;
      };
      const GemmForm many = choose(256);
      const std::vector<GemmTile> tiles = PossibleTiles(args, planes, device);
      EXPECT_TRUE(std::any_of(tiles.begin(), tiles.end(),
                              [](const GemmTile& tile) { return tile.form == GemmForm::kWarpgroup; }));
      // One column a stream is few for tiles of 128.
      if (layer.rows > 1) {
        EXPECT_EQ(many, GemmForm::kWarpgroup);
      }
      EXPECT_NE(choose(1), GemmForm::kWarpgroup);
    }
  }
}

// Tiles of 64 columns fit every device. With many taps, wider ones may exceed its shared memory.
TEST_F(DeviceNumbersTest, TheCodecChoosesNoTileThatDoesNotFit) {
  const auto widest = [](int taps, Planes planes, int w_planes, size_t shared_bytes) {
    GemmArgs args = CodecProduct(64, 64 * 16, 1536, 768, taps);
    args.weights.planes = w_planes;
    cuda::codec::DeviceTraits device = Traits(170);
    device.shared_bytes = shared_bytes;
    int columns = 0;
    for (const GemmTile& tile : PossibleTiles(args, planes, device)) {
      if (tile.form == GemmForm::kWide) columns = std::max(columns, tile.columns);
    }
    return columns;
  };
  constexpr size_t kLeast = size_t{99} << 10;
  for (const int taps : {1, 7, cuda::codec::kMaxTaps}) {
    EXPECT_EQ(widest(taps, Planes::kHalf, 1, kLeast), 128) << taps;
    EXPECT_EQ(widest(taps, Planes::kTwoHalves, 2, kLeast), taps <= 7 ? 128 : 64) << taps;
    EXPECT_EQ(widest(taps, Planes::kTwoHalves, 2, size_t{227} << 10), 128) << taps;
  }
}

}  // namespace
}  // namespace qtts
