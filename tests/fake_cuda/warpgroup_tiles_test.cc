// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gemm/warpgroup_tiles.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "gemm/warpgroup.h"

// The products of warpgroups without a GPU: the kernel's own index functions, run on labels instead of numbers, with
// the operands of the matrix instruction as the PTX manual describes them.
namespace qtts {
namespace {

using namespace cuda::gemm;  // NOLINT: all of the header
using cuda::GemmKind;
using cuda::kChunk;
using cuda::Padded;

struct Label {
  int row = -1, column = -1;
  auto operator<=>(const Label&) const = default;
};

// Weights as Pack() leaves them: [tile][chunk][halves of 8 rows][lane][8], here by byte offset of each element. Weight
// rows in the order of packed tiles.
std::map<int64_t, Label> PackedWeights(GemmKind kind, int rows, int columns) {
  const int tile = cuda::TileOutputs(kind);
  const int halves = tile / 8;
  const int chunks = Padded(columns) / kChunk;
  std::map<int64_t, Label> memory;
  for (int row = 0; row < rows; ++row) {
    for (int k = 0; k < columns; ++k) {
      const int m = row % tile;
      const int lane = m % 8 * 4 + k % kChunk / 8;
      const int64_t block = (static_cast<int64_t>(row / tile) * chunks + k / kChunk) * halves + m / 8;
      memory[((block * 32 + lane) * 8 + k % 8) * 2] = {row, k};
    }
  }
  return memory;
}

// Operand a of a warp (LeftFragment in runtime/fragment.h).
using Operand = std::map<std::pair<int, int>, Label>;  // [row or column][element]

// A stage of shared memory, by byte offset.
using Stage = std::map<int64_t, Label>;

Operand WarpOperand(const Stage& stage, const WeightUnits& units, int warp, int chunk, int step) {
  Operand a;
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const bool upper = i % 2 != 0;
      const int word = 2 * step + i / 2;  // x, y, z, w of the lane's 16 bytes
      for (int j = 0; j < 2; ++j) {
        const int64_t at = warp * kStageWarpBytes + FragmentOffset(units, chunk, upper) + lane * 16 + word * 4 + j * 2;
        const auto found = stage.find(at);
        a[{cuda::LeftFragment::Row(lane, i), cuda::LeftFragment::Column(lane, i) + j}] =
            found == stage.end() ? Label() : found->second;
      }
    }
  }
  return a;
}

// Operand b by its descriptor: rows of 128 bytes in groups of 8; bits 4 to 6 of an address with bits 7 to 9.
Operand RowsOperand(const Stage& stage, uint64_t descriptor, int columns) {
  const auto start = static_cast<int64_t>((descriptor & 0x3FFF) << 4);
  const auto stride = static_cast<int64_t>((descriptor >> 32 & 0x3FFF) << 4);
  EXPECT_EQ(descriptor >> 62, 1U) << "swizzle of 128 bytes";
  EXPECT_EQ(descriptor >> 49 & 7, 0U) << "base offset";
  Operand b;
  for (int n = 0; n < columns; ++n) {
    for (int k = 0; k < 16; ++k) {
      const int64_t plain = start + n / 8 * stride + n % 8 * 128 + k * 2;
      const auto found = stage.find(plain ^ (plain >> 7 & 7) << 4);
      b[{n, k}] = found == stage.end() ? Label() : found->second;
    }
  }
  return b;
}

// The columns of a chunk's first and second instruction in the kernels for few rows.
int StepOf(int column) { return column % kChunk / 4 % 2; }

struct Sizes {
  GemmKind kind;
  int outputs, columns, rows, warpgroups, tile_rows;
};

class WarpgroupTilesTest : public ::testing::TestWithParam<Sizes> {};

TEST_P(WarpgroupTilesTest, MultipliesEachElementOnceInTodaysOrder) {
  const auto [kind, outputs, columns, rows, warpgroups, tile_rows] = GetParam();
  const auto weight_rows = static_cast<int>(WeightRows(kind, outputs));
  const int chunks = columns / kChunk;
  const WeightUnits units = UnitsOf(kind, outputs);
  const std::map<int64_t, Label> weights = PackedWeights(kind, weight_rows, columns);
  std::map<int64_t, Label> pieces;
  for (int row = 0; row < rows; ++row) {
    for (int k = 0; k < columns; ++k) {
      const int64_t at = ElementOffset(rows, row, k);
      ASSERT_TRUE(pieces.emplace(at, Label{row, k}).second) << "two elements in one place";
      ASSERT_LT(at, SwizzledBytes(rows, columns));
    }
  }
  const WarpgroupTile tile = {warpgroups, tile_rows, WarpgroupTile::Blocks::kAlone};
  const WarpgroupLaunch plan = PlanWarpgroup(tile, kind, outputs, rows, 132);
  const int units_of_tile = warpgroups * units.per_group;
  ASSERT_LE(units_of_tile, 32) << "a lane each";
  const int row_groups = static_cast<int>(PaddedRows(rows) / kSwizzledRows);
  std::set<std::pair<int, int>> stored;
  for (int64_t output_tile = 0; output_tile < plan.output_tiles; ++output_tile) {
    for (int64_t row_tile = 0; row_tile < plan.row_tiles; ++row_tile) {
      std::map<std::pair<int, int>, std::vector<int>> columns_of;  // [weight row of the tile, row of it], in order
      for (int stage = 0; stage < chunks / kStageChunks; ++stage) {
        // The copies.
        Stage shared_weights, shared_rows;
        for (int unit = 0; unit < units_of_tile; ++unit) {
          const auto of = static_cast<int>(output_tile * units_of_tile) + unit;
          if (of >= units.count) continue;
          const int64_t from = UnitSource(units, of, chunks, stage);
          for (int64_t byte = 0; byte < units.bytes; byte += 2) {
            const auto found = weights.find(from + byte);
            if (found != weights.end()) shared_weights[unit * units.bytes + byte] = found->second;
          }
        }
        const int64_t first_group = row_tile * (tile_rows / kSwizzledRows);
        const int64_t groups = std::min<int64_t>(tile_rows / kSwizzledRows, row_groups - first_group);
        for (int64_t byte = 0; byte < groups * kSwizzledGroupBytes; byte += 2) {
          const auto found = pieces.find((int64_t{stage} * row_groups + first_group) * kSwizzledGroupBytes + byte);
          if (found != pieces.end()) shared_rows[byte] = found->second;
        }
        // The products.
        for (int chunk = 0; chunk < kStageChunks; ++chunk) {
          for (int step = 0; step < 2; ++step) {
            const Operand b = RowsOperand(
                shared_rows, cuda::MatrixDescriptor(static_cast<uint32_t>(chunk * 64 + step * 32)), tile_rows);
            for (int warp = 0; warp < warpgroups * kGroupWarps; ++warp) {
              const Operand a = WarpOperand(shared_weights, units, warp, chunk, step);
              for (int m = 0; m < kWarpOutputs; ++m) {
                const int weight = static_cast<int>(output_tile) * warpgroups * kGroupOutputs + warp * kWarpOutputs + m;
                if (weight >= weight_rows) continue;
                for (const int n : {0, 1, 7, 8, tile_rows / 2 + 3, tile_rows - 1}) {
                  const auto row = static_cast<int>(row_tile) * tile_rows + n;
                  if (row >= rows) continue;
                  for (int k = 0; k < 16; ++k) {
                    const Label w = a.at({m, k});
                    const Label x = b.at({n, k});
                    ASSERT_EQ(w.row, weight);
                    ASSERT_EQ(x.row, row);
                    ASSERT_EQ(w.column, x.column);
                    ASSERT_EQ(w.column / kChunk, stage * kStageChunks + chunk);
                    ASSERT_EQ(StepOf(w.column), step);
                    columns_of[{weight, row}].push_back(w.column);
                  }
                }
              }
            }
          }
        }
      }
      for (const auto& [sum, of] : columns_of) {
        ASSERT_EQ(std::set<int>(of.begin(), of.end()).size(), static_cast<size_t>(columns));
        ASSERT_EQ(of.size(), static_cast<size_t>(columns));
      }
      // The sums.
      for (int warp = 0; warp < warpgroups * kGroupWarps; ++warp) {
        for (int lane = 0; lane < 32; ++lane) {
          for (int i = 0; i < tile_rows / 2; ++i) {
            const int weight = static_cast<int>(output_tile) * warpgroups * kGroupOutputs + warp * kWarpOutputs +
                               cuda::SumFragment::Row(lane, i);
            const int row = static_cast<int>(row_tile) * tile_rows + cuda::SumFragment::Column(lane, i);
            ASSERT_TRUE(stored.emplace(weight, row).second);
          }
        }
      }
    }
  }
  for (int weight = 0; weight < weight_rows; ++weight) {
    for (int row = 0; row < rows; ++row) ASSERT_TRUE(stored.count({weight, row})) << weight << " " << row;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, WarpgroupTilesTest,
                         ::testing::Values(Sizes{GemmKind::kAdd, 64, 512, 64, 1, 64},
                                           Sizes{GemmKind::kAdd, 136, 512, 130, 2, 128},
                                           Sizes{GemmKind::kNormStore, 144, 512, 67, 1, 64},
                                           Sizes{GemmKind::kNormGated, 72, 512, 129, 2, 128}));

// A chunk has eight shares of whole stages for any number of columns. A copy per thread moves the same elements as
// copies of single elements.
TEST(Pieces, ACopyOfAChunkIsTheElementsInPlace) {
  constexpr int kRows = 19;
  for (int row = 0; row < kRows; ++row) {
    for (int k = 0; k < 4 * kChunk; ++k) {
      // ArrangeRows(): word w of unit i of the source becomes word i of unit w.
      const int in_chunk = k % kChunk;
      const int from_unit = in_chunk / 8;
      const int from_word = in_chunk % 8 / 2;
      const int unit = k % kSwizzledColumns / kChunk * 4 + from_word;
      EXPECT_EQ(UnitOffset(kRows, row, k / kSwizzledColumns, unit) + from_unit * 4 + k % 2 * 2,
                ElementOffset(kRows, row, k));
    }
  }
}

TEST(Pieces, BlocksRunAtOnceAndCoverAllTiles) {
  using Blocks = WarpgroupTile::Blocks;
  const WarpgroupTile alone = {2, 128, Blocks::kAlone};
  const WarpgroupLaunch many = PlanWarpgroup(alone, GemmKind::kNormGated, 3072, 1024, 132);
  EXPECT_EQ(many.output_tiles, 48);
  EXPECT_EQ(many.row_tiles, 8);
  EXPECT_EQ(many.blocks, 132U);
  EXPECT_EQ(PlanWarpgroup(alone, GemmKind::kAdd, 1024, 65, 132).blocks, 8U);
  EXPECT_EQ(PlanWarpgroup({2, 128, Blocks::kSplit}, GemmKind::kAdd, 1024, 256, 132).blocks, 128U);
}

}  // namespace
}  // namespace qtts
