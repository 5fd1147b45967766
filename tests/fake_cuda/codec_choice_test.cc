// SPDX-License-Identifier: LGPL-2.1-or-later
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "codec/gemm.h"
#include "codec/gemm_choice.h"
#include "codec/staged_plan.h"
#include "codec/staging.h"
#include "codec/steps.h"
#include "codec/tile_table.h"
#include "codec/warpgroup_plan.h"
#include "fake_cuda/fake_cuda.h"
#include "gpu/gpu_test.h"
#include "runtime/memory_count.h"

namespace qtts {
namespace {

using cuda::CodecPrecision;
using cuda::CodecTable;
using namespace cuda::codec;  // NOLINT(google-build-using-namespace): the subject of this file

// Times in us of the codec's kernels on an H200, fitted to measurements: what the rows of kHopper were made of.
struct KernelTimes {
  // A block of a cluster: a chunk's products for one pair of planes; what it takes besides.
  double cluster_chunk = 0.09, cluster_block = 1.5;
  // A wide block: a chunk's products of 128 columns, and the latency of a chunk; finishing a column, and what it takes
  // longer with residuals; what it takes besides.
  double wide_products = 0.27, wide_latency = 0.3, wide_column = 0.03, wide_residual = 0.04, wide_block = 1.5;
  // A tile of 128 columns and 192 outputs by warpgroups: a chunk's products for one pair of planes; finishing it, and
  // what it takes longer with residuals; what a kernel takes besides. A plane of a chunk's columns, where they come for
  // this chunk alone.
  double warpgroup_chunk = 0.26, warpgroup_tile = 10, warpgroup_residual = 4, warpgroup_kernel = 5;
  double warpgroup_stream = 0.15;
  // A whole tile of 128 columns and 6 weight tiles, by an estimate of shared memory and instructions: a chunk's
  // products for one pair of planes, the latency of a chunk, finishing a column, what it takes longer with residuals,
  // and what a block takes besides.
  double staged_products = 0.2, staged_latency = 0.3, staged_column = 0.02, staged_residual = 0.02, staged_block = 1.5;
  // A narrow block: a chunk's products of 8 columns and one tile, the latency of a chunk, bytes loaded in a us; what
  // it takes besides, and where another block had its place before.
  double narrow_products = 0.003, narrow_latency = 0.1, narrow_bytes = 50e3, narrow_block = 1.0, narrow_turn = 7;
};
constexpr KernelTimes kTimes;

double EstimateWarpgroups(const GemmArgs& args, double products, double least, const GemmTile& tile,
                          const DeviceTraits& device) {
  const int at_once = std::max(1, device.processors / CeilDiv(args.geometry.tiles, tile.tiles));
  const int turns = CeilDiv(CeilDiv(args.geometry.columns, tile.columns), at_once);
  const double size = static_cast<double>(tile.columns * tile.tiles) / (128 * 12);
  const double finish = kTimes.warpgroup_tile + (args.epilogue.residual != nullptr ? kTimes.warpgroup_residual : 0);
  const double multiply = std::max(least, size * kTimes.warpgroup_chunk * products);
  return kTimes.warpgroup_kernel + turns * (multiply + size * finish);
}

// Estimates a product: loads and multiplications of a thread block times the number of waves, or the latency of its
// chain of chunks if that is longer.
double EstimateTime(const GemmArgs& args, Planes x_planes, const GemmTile& tile, const DeviceTraits& device) {
  const GemmGeometry& geometry = args.geometry;
  const double planes_x = x_planes == Planes::kTwoHalves ? 2 : 1;
  const double planes_w = args.weights.planes;
  const double products = planes_x + planes_w - 1;
  const double blocks =
      static_cast<double>(CeilDiv(geometry.columns, tile.columns)) * CeilDiv(geometry.tiles, tile.tiles);
  switch (tile.form) {
    case GemmForm::kCluster: {
      const double turns = std::ceil(blocks * geometry.groups / device.processors);
      return turns * (kTimes.cluster_chunk * products * geometry.chunks / geometry.groups + kTimes.cluster_block);
    }
    case GemmForm::kWide: {
      const int at_once = tile.columns == 128 ? 1 : 2;
      const double turns = std::ceil(blocks / (device.processors * at_once));
      const double together = std::min<double>(at_once, std::ceil(blocks / device.processors));
      const double multiply = kTimes.wide_products * products * tile.columns / 128;
      const double chunk = std::max(kTimes.wide_latency + multiply, together * multiply);
      const double column = kTimes.wide_column + (args.epilogue.residual != nullptr ? kTimes.wide_residual : 0);
      return turns * (geometry.chunks * chunk + column * tile.columns * together + kTimes.wide_block);
    }
    case GemmForm::kWarpgroup:
      return EstimateWarpgroups(args, products * geometry.chunks,
                                StreamsColumns(geometry) ? planes_x * geometry.chunks * kTimes.warpgroup_stream : 0,
                                tile, device);
    case GemmForm::kStaged: {
      const int at_once = StagedBlocksOfSm(tile.columns, tile.tiles);
      const double turns = std::ceil(blocks / (device.processors * at_once));
      const double together = std::min<double>(at_once, std::ceil(blocks / device.processors));
      const double size = tile.tiles * tile.columns / (6 * 128.0);
      const double multiply = kTimes.staged_products * products * size;
      const double chunk = std::max(kTimes.staged_latency + multiply, together * multiply);
      const double column = kTimes.staged_column + (args.epilogue.residual != nullptr ? kTimes.staged_residual : 0);
      return turns * (geometry.chunks * chunk + column * 128 * size * together + kTimes.staged_block);
    }
    case GemmForm::kNarrow:
      break;
  }
  const int rows = tile.tiles * kTileRows;
  const int at_once = kMaxSegments / (tile.tiles * geometry.segments);
  const double turns = std::ceil(blocks / (device.processors * at_once));
  const double chunks = static_cast<double>(geometry.chunks) / geometry.segments;
  const double bytes = 2.0 * geometry.chunks * kChannelBlock * (rows * planes_w + tile.columns * planes_x);
  const double multiply =
      chunks * at_once * tile.tiles * geometry.segments * tile.columns / 8 * products * kTimes.narrow_products;
  const double load = bytes * at_once / kTimes.narrow_bytes;
  return turns * (std::max({multiply, load, chunks * kTimes.narrow_latency}) + kTimes.narrow_block) +
         std::max(0.0, turns - 1) * kTimes.narrow_turn;
}

double EstimateUnitTime(const GemmArgs& first, const GemmArgs& second, const GemmTile& tile,
                        const DeviceTraits& device) {
  const int products = 2 * first.weights.planes - 1;
  return EstimateWarpgroups(second, products * (first.geometry.chunks + second.geometry.chunks), 0, tile, device);
}

// Returns the first of the kernels with the least estimated time.
GemmTile EstimatedTile(const GemmArgs& args, Planes planes, const DeviceTraits& device) {
  GemmTile best;
  double best_time = 0;
  for (const GemmTile& tile : PossibleTiles(args, planes, device)) {
    const double time = EstimateTime(args, planes, tile, device);
    if (best_time == 0 || time < best_time) {
      best_time = time;
      best = tile;
    }
  }
  return best;
}

bool IsUnitByEstimate(const GemmArgs& first, const GemmArgs& second, Planes planes, const UnitWeights& weights,
                      const DeviceTraits& device) {
  GemmTile tile;
  if (!UnitTakes(first, second, weights, &tile, device)) return false;
  const auto alone = [&](const GemmArgs& args) {
    return EstimateTime(args, planes, EstimatedTile(args, planes, device), device);
  };
  return EstimateUnitTime(first, second, tile, device) < alone(first) + alone(second);
}

std::string NameOf(const GemmTile& tile) {
  constexpr const char* kForms[] = {"narrow", "cluster", "wide", "warpgroup", "staged"};
  return std::string(kForms[static_cast<int>(tile.form)]) + " of " + std::to_string(tile.columns) + " columns and " +
         std::to_string(tile.tiles) + " tiles";
}

// Numbers of streams of the codec's graphs in engines (CudaBackend's slices).
constexpr int kStreams[] = {1, 2, 4, 8, 16, 32, 64, 96, 128, 160, 192, 224, 256};

class CodecChoiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_cuda::Reset();
    golden::RandomCheckpointSpec spec = testing::MidSize(false);
    spec.codec = testing::Preset("0.6b-custom").codec;
    spec.codec_dtype = DType::kF16;
    model_.emplace(spec);
    ASSERT_EQ(PrepareKernels(&h200_), cudaSuccess);
    ASSERT_TRUE(h200_.clusters && h200_.warpgroups);
    ASSERT_EQ(h200_.processors, 132);
  }

  // The released codec's products for batches of up to `rows`. No memory is behind them.
  std::vector<Step> StepsOf(CodecPrecision precision, int rows, const DeviceTraits& device) {
    cuda::MemoryCount count;
    cuda::Arena memory;
    std::vector<Step> steps;
    const Checkpoint& checkpoint = *model_->checkpoint();
    Builder builder(checkpoint.config().codec, checkpoint.codec(), device, precision, rows, rows, &memory, &steps);
    const Status status = builder.Build();
    EXPECT_TRUE(status.ok()) << status.message();
    return steps;
  }

  // Calls `check`(product, its unit's second product or null, streams, traits of the device then).
  template <typename Check>
  void ForEachProduct(const DeviceTraits& device, const Check& check) {
    const cuda::CodecNumbers& codec = cuda::kH200Numbers.codec;
    for (const CodecPrecision precision : {CodecPrecision::kExact, CodecPrecision::kFast}) {
      for (const int rows : {1, 8, 64, 96, 256}) {
        const std::vector<Step> steps = StepsOf(precision, rows, device);
        for (size_t i = 0; i < steps.size(); ++i) {
          const auto* const product = std::get_if<GemmStep>(&steps[i]);
          if (product == nullptr) continue;
          for (const int streams : kStreams) {
            if (streams > rows) break;
            DeviceTraits traits = device;
            if (streams > codec.few_streams && streams <= codec.some_streams) {
              traits.processors = std::min(traits.processors, codec.processors_of_some);
            }
            const auto with_columns = [&](GemmStep step) {
              step.args.geometry.columns = streams * step.args.x.rows;
              return step;
            };
            const GemmStep first = with_columns(*product);
            SCOPED_TRACE(std::to_string(streams) + " of " + std::to_string(rows) + " streams, " +
                         std::to_string(first.args.geometry.chunks * kChannelBlock) + " inputs to " +
                         std::to_string(first.args.geometry.tiles * kTileRows));
            if (first.unit.first != nullptr) {
              const GemmStep second = with_columns(std::get<GemmStep>(steps[i + 1]));
              check(first, &second, traits);
            } else {
              check(first, static_cast<const GemmStep*>(nullptr), traits);
            }
          }
        }
      }
    }
  }

  std::optional<testing::RandomModel> model_;
  DeviceTraits h200_;
};

// Each product of the released codec has the kernel that is estimated to be the fastest, for all numbers of streams
// that engines decode at once.
TEST_F(CodecChoiceTest, TheTableOfTheH200IsTheEstimate) {
  std::set<const ProductTiles*> used;
  ForEachProduct(h200_, [&](const GemmStep& first, const GemmStep* second, const DeviceTraits& device) {
    const std::span<const ProductTiles> table = TableFor(device, cuda::kH200Numbers.codec);
    const ProductTiles* const row = FindTiles(table, first.args, first.x_planes);
    ASSERT_NE(row, nullptr);
    used.insert(row);
    EXPECT_EQ(NameOf(ChooseTile(first.args, first.x_planes, device, table, /*beside=*/false)),
              NameOf(EstimatedTile(first.args, first.x_planes, device)));
    if (second == nullptr) return;
    EXPECT_EQ(ChooseUnit(first.args, second->args, first.x_planes, first.unit, device, table),
              IsUnitByEstimate(first.args, second->args, first.x_planes, first.unit, device));
  });
  EXPECT_EQ(used.size(), TilesOf(CodecTable::kHopper).size()) << "a row that no product has";
}

// Without a table all products together take hardly longer, by the estimate: on the H200, and on cards without clusters
// and warpgroups.
TEST_F(CodecChoiceTest, TheRuleIsNotFarFromTheEstimate) {
  std::vector<DeviceTraits> devices = {h200_};
  for (const int processors : {28, 58, 108, 128, 170}) {
    DeviceTraits& device = devices.emplace_back(h200_);
    device.processors = processors;
    device.shared_bytes = size_t{99} << 10;
    device.clusters = device.warpgroups = false;
  }
  for (const DeviceTraits& card : devices) {
    double sum = 0;
    double best_sum = 0;
    double worst = 0;
    ForEachProduct(card, [&](const GemmStep& first, const GemmStep* /*second*/, const DeviceTraits& device) {
      const auto time = [&](const GemmTile& tile) { return EstimateTime(first.args, first.x_planes, tile, device); };
      const GemmTile tile = RuleTile(first.args, first.x_planes, device);
      const std::vector<GemmTile> possible = PossibleTiles(first.args, first.x_planes, device);
      EXPECT_TRUE(std::any_of(possible.begin(), possible.end(), [&](const GemmTile& other) {
        return NameOf(other) == NameOf(tile);
      })) << NameOf(tile);
      const double best = time(EstimatedTile(first.args, first.x_planes, device));
      sum += time(tile);
      best_sum += best;
      worst = std::max(worst, time(tile) / best);
    });
    EXPECT_LT(sum, 1.15 * best_sum) << card.processors << " SMs";
    // Products that take a microsecond or two.
    EXPECT_LT(worst, 6) << card.processors << " SMs";
  }
}

// Without warpgroups, whole tiles make the decoder blocks' products of many streams, whatever shared memory there is.
TEST_F(CodecChoiceTest, ManyStreamsHaveWholeTilesWithoutWarpgroups) {
  for (const size_t kib : {99, 163, 227}) {
    DeviceTraits card = h200_;
    card.clusters = card.warpgroups = false;
    card.processors = 108;
    card.shared_bytes = kib << 10;
    int products = 0;
    for (const CodecPrecision precision : {CodecPrecision::kExact, CodecPrecision::kFast}) {
      const std::vector<Step> steps = StepsOf(precision, 256, card);
      for (const Step& step : steps) {
        const auto* const product = std::get_if<GemmStep>(&step);
        if (product == nullptr || product->args.x.rows < 32) continue;
        GemmArgs args = product->args;
        args.geometry.columns = 256 * args.x.rows;
        const std::span<const ProductTiles> table = TableFor(card, cuda::CodecNumbers());
        const GemmTile tile = ChooseTile(args, product->x_planes, card, table, /*beside=*/false);
        SCOPED_TRACE(std::to_string(kib) + " KiB, " + std::to_string(args.geometry.chunks * kChannelBlock) +
                     " inputs to " + std::to_string(args.geometry.tiles * kTileRows));
        EXPECT_EQ(NameOf(tile).substr(0, 6), "staged");
        args.geometry.columns = args.x.rows;
        EXPECT_NE(NameOf(ChooseTile(args, product->x_planes, card, table, false)).substr(0, 6), "staged");
        ++products;
      }
    }
    EXPECT_EQ(products, 2 * (4 * 6 + 3));
  }
}

// Each row of the table of cards without warpgroups is one of a product's, and all its kernels can run with an A100's
// shared memory.
TEST_F(CodecChoiceTest, TheTableWithoutWarpgroupsIsOfKernelsThatRun) {
  DeviceTraits card = h200_;
  card.clusters = card.warpgroups = false;
  card.processors = 108;
  card.shared_bytes = size_t{163} << 10;
  std::set<const ProductTiles*> used;
  for (const Step& step : StepsOf(CodecPrecision::kExact, 256, card)) {
    const auto* const product = std::get_if<GemmStep>(&step);
    if (product == nullptr) continue;
    const ProductTiles* const row = FindTiles(TilesOf(CodecTable::kWarps), product->args, product->x_planes);
    ASSERT_NE(row, nullptr);
    if (!used.insert(row).second) continue;
    for (const auto& [streams, tile] : row->tiles) {
      if (streams == 0) break;
      const std::vector<GemmTile> possible = PossibleTiles(product->args, product->x_planes, card);
      EXPECT_TRUE(std::any_of(possible.begin(), possible.end(), [&](const GemmTile& other) {
        return NameOf(other) == NameOf(tile);
      })) << NameOf(tile);
    }
  }
  EXPECT_EQ(used.size(), TilesOf(CodecTable::kWarps).size()) << "a row that no product has";
}

// A benchmark's own table decides as the card's does: tiles that the device can run, and residual units. Products
// without a row have the rule.
TEST_F(CodecChoiceTest, ATableThatIsHandedInDecides) {
  DeviceTraits card = h200_;
  card.clusters = card.warpgroups = false;
  card.shared_bytes = size_t{163} << 10;
  int units = 0;
  const std::vector<Step> steps = StepsOf(CodecPrecision::kExact, 64, card);
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto* const product = std::get_if<GemmStep>(&steps[i]);
    if (product == nullptr) continue;
    GemmArgs args = product->args;
    args.geometry.columns = 64 * args.x.rows;
    const auto name = [&](std::span<const ProductTiles> table) {
      return NameOf(ChooseTile(args, product->x_planes, card, table, /*beside=*/false));
    };
    EXPECT_EQ(name({}), NameOf(RuleTile(args, product->x_planes, card)));
    ProductTiles row = *FindTiles(TilesOf(CodecTable::kWarps), args, product->x_planes);
    for (const GemmTile& tile : PossibleTiles(args, product->x_planes, card)) {
      row.tiles = {{{kAnyStreams, tile}}};
      EXPECT_EQ(name({&row, 1}), NameOf(tile));
    }
    row.tiles = {{{kAnyStreams, {GemmForm::kWarpgroup, 128, 12}}}};
    EXPECT_EQ(name({&row, 1}), name({})) << "without warpgroups";
    if (product->unit.first == nullptr) continue;
    GemmArgs next = std::get<GemmStep>(steps[i + 1]).args;
    next.geometry.columns = args.geometry.columns;
    for (const int from : {0, 64, 65}) {
      row.unit_streams = from;
      EXPECT_EQ(ChooseUnit(args, next, product->x_planes, product->unit, card, {&row, 1}), from == 64);
    }
    ++units;
  }
  EXPECT_GT(units, 0);
}

// A card of more SMs takes a table's row as if it had fewer streams.
TEST_F(CodecChoiceTest, ATableCountsStreamsByItsCard) {
  DeviceTraits card = h200_;
  EXPECT_EQ(TableStreams(64, card), 64);
  card.processors = 99;  // the others are left to other kernels
  EXPECT_EQ(TableStreams(64, card), 64);
  card.warpgroups = false;
  card.processors = 66;
  EXPECT_EQ(TableStreams(64, card), 128);
  card.processors = 264;
  EXPECT_EQ(TableStreams(64, card), 32);
  EXPECT_EQ(TableStreams(1, card), 1);
}

// The ring has a slot for each channel block that is copied or read at a time, and none to spare.
TEST(StagingTest, NoSlotIsOverwrittenBeforeTheLastTapHasReadIt) {
  const auto is_safe = [](int taps, int group_blocks, int ahead, int slots) {
    constexpr int kGroups = 4;
    const int chunks = kGroups * taps * group_blocks;
    struct Chunk {
      int tap, block;  // blocks of all groups are counted
    };
    const auto at = [&](int chunk) {
      const int of_group = taps * group_blocks;
      return Chunk{chunk % of_group / group_blocks, chunk / of_group * group_blocks + chunk % group_blocks};
    };
    std::vector<int> ring(static_cast<size_t>(slots), -1);
    const auto copy = [&](int chunk) {
      if (chunk >= chunks || at(chunk).tap != 0) return;
      ring[static_cast<size_t>(at(chunk).block % slots)] = at(chunk).block;
    };
    for (int chunk = 0; chunk < ahead; ++chunk) copy(chunk);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      copy(chunk + ahead);
      if (ring[static_cast<size_t>(at(chunk).block % slots)] != at(chunk).block) return false;
    }
    return true;
  };
  for (const int taps : {1, 2, 3, 7}) {
    for (int group_blocks = 1; group_blocks <= 4; ++group_blocks) {
      for (int ahead = 1; ahead <= 3; ++ahead) {
        SCOPED_TRACE(std::to_string(taps) + " taps, " + std::to_string(group_blocks) + " blocks, " +
                     std::to_string(ahead) + " ahead");
        const int slots = SlotsAhead(taps, group_blocks, ahead);
        EXPECT_TRUE(is_safe(taps, group_blocks, ahead, slots));
        EXPECT_FALSE(is_safe(taps, group_blocks, ahead, slots - 1));
      }
    }
  }
}

}  // namespace
}  // namespace qtts
