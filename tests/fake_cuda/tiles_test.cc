// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gemm/tiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "gemm/swizzled.h"
#include "runtime/matrix_operand.h"

// The products by tiles without a GPU: the kernel's own index functions, run on labels instead of numbers, with the
// operands of the matrix instruction as the PTX manual describes them.
namespace qtts {
namespace {

using namespace cuda::gemm;  // NOLINT: all of the headers
using cuda::GemmKind;
using cuda::kChunk;

constexpr int kStageColumns = kSwizzledColumns;
constexpr int kOperandRows = 64;  // of one matrix instruction; both operands have as many here

struct Label {
  int row = -1, column = -1;
  auto operator<=>(const Label&) const = default;
};

// Memory or a stage of shared memory, by byte offset.
using Memory = std::map<int64_t, Label>;
// An operand, by row and column.
using Operand = std::map<std::pair<int, int>, Label>;

Memory SwizzledMemory(int rows, int columns) {
  Memory memory;
  for (int row = 0; row < rows; ++row) {
    for (int k = 0; k < columns; ++k) {
      const int64_t at = ElementOffset(rows, row, k);
      EXPECT_TRUE(memory.emplace(at, Label{row, k}).second) << "two elements in one place";
      EXPECT_LT(at, SwizzledBytes(rows, columns));
    }
  }
  return memory;
}

// The bulk copy of a stage: kOperandRows rows from `first_row`, or those that there are.
Memory StageOf(const Memory& memory, int rows, int first_row, int stage) {
  const int64_t groups = PaddedRows(rows) / kSwizzledRows;
  const int64_t first_group = first_row / kSwizzledRows;
  const int64_t count = std::min<int64_t>(kOperandRows / kSwizzledRows, groups - first_group);
  const int64_t from = (stage * groups + first_group) * kSwizzledGroupBytes;
  Memory copied;
  const auto end = memory.lower_bound(from + count * kSwizzledGroupBytes);
  for (auto i = memory.lower_bound(from); i != end; ++i) copied[i->first - from] = i->second;
  return copied;
}

// An operand by its descriptor: rows of 128 bytes in groups of 8; bits 4 to 6 of an address with bits 7 to 9.
Operand OperandOf(const Memory& stage, uint64_t descriptor) {
  const auto start = static_cast<int64_t>((descriptor & 0x3FFF) << 4);
  const auto stride = static_cast<int64_t>((descriptor >> 32 & 0x3FFF) << 4);
  EXPECT_EQ(descriptor >> 62, 1U) << "swizzle of 128 bytes";
  EXPECT_EQ(descriptor >> 49 & 7, 0U) << "base offset";
  Operand operand;
  for (int n = 0; n < kOperandRows; ++n) {
    for (int k = 0; k < 16; ++k) {
      const int64_t plain = start + n / 8 * stride + n % 8 * 128 + k * 2;
      const auto found = stage.find(plain ^ (plain >> 7 & 7) << 4);
      operand[{n, k}] = found == stage.end() ? Label() : found->second;
    }
  }
  return operand;
}

// The matrix instruction of a chunk that multiplies a column in the kernels for few rows: the first or the second.
int StepOf(int column) { return column % kChunk / 4 % 2; }

// Each row of the tile meets each weight row, column by column, in the order of k-steps of the kernels for few rows.
void ExpectProduct(const Operand& x, int rows, const Operand& w, int weights, int first_column, int step) {
  for (int n = 0; n < rows; ++n) {
    for (const int m : {0, 1, 7, 8, weights / 2 + 3, weights - 1}) {
      std::set<int> columns;
      for (int k = 0; k < 16; ++k) {
        const Label of_x = x.at({n, k});
        const Label of_w = w.at({m, k});
        ASSERT_EQ(of_x.row % kOperandRows, n);
        ASSERT_EQ(of_w.row % kOperandRows, m);
        ASSERT_EQ(of_x.column, of_w.column);
        ASSERT_EQ(of_x.column / kChunk, first_column / kChunk);
        ASSERT_EQ(StepOf(of_x.column), step);
        columns.insert(of_x.column);
      }
      ASSERT_EQ(columns.size(), 16U);
    }
  }
}

TEST(Tiles, MultiplyEachElementOnceInTheOrderOfFewRows) {
  constexpr int kColumns = 512, kWeightRows = 128;
  const Memory weights = SwizzledMemory(kWeightRows, kColumns);
  for (const int rows : {64, 67, 96, 136}) {
    SCOPED_TRACE(rows);
    const Memory activations = SwizzledMemory(rows, kColumns);
    for (int first_row = 0; first_row < rows; first_row += kOperandRows) {
      for (int first_weight = 0; first_weight < kWeightRows; first_weight += kOperandRows) {
        for (int stage = 0; stage < kColumns / kStageColumns; ++stage) {
          const Memory x = StageOf(activations, rows, first_row, stage);
          const Memory w = StageOf(weights, kWeightRows, first_weight, stage);
          for (int k = 0; k < kStageColumns / 16; ++k) {
            const uint64_t descriptor = cuda::MatrixDescriptor(0) + static_cast<uint64_t>(2 * k);
            ASSERT_NO_FATAL_FAILURE(ExpectProduct(OperandOf(x, descriptor), std::min(kOperandRows, rows - first_row),
                                                  OperandOf(w, descriptor), kOperandRows,
                                                  stage * kStageColumns + k / 2 * kChunk, k % 2));
          }
        }
      }
    }
  }
}

// Both kernels that swizzle move words: word w of a chunk's 16-byte unit u becomes word u of unit w.
TEST(Tiles, TransposedUnitsOfAChunkAreTheElementsInPlace) {
  constexpr int kRows = 19;
  for (int row = 0; row < kRows; ++row) {
    for (int k = 0; k < 4 * kChunk; ++k) {
      const int in_chunk = k % kChunk;
      const int from_unit = in_chunk / 8;
      const int from_word = in_chunk % 8 / 2;
      const int unit = k % kSwizzledColumns / kChunk * 4 + from_word;
      EXPECT_EQ(UnitOffset(kRows, row, k / kSwizzledColumns, unit) + from_unit * 4 + k % 2 * 2,
                ElementOffset(kRows, row, k));
    }
  }
}

// Which matrices have tiles: columns in eight shares of whole stages, weight rows in whole tiles, kinds of a frame.
TEST(Tiles, MatricesThatHaveThem) {
  const auto has = [](GemmKind kind, int outputs, int columns) {
    cuda::Matrix matrix;
    matrix.kind = kind;
    matrix.outputs = outputs;
    matrix.columns = columns;
    return HasTiles(matrix);
  };
  EXPECT_TRUE(has(GemmKind::kNormStore, 4096, 1024));
  EXPECT_TRUE(has(GemmKind::kNormGated, 3072, 1024));
  EXPECT_TRUE(has(GemmKind::kNormGated, 32, 512)) << "32 gates and 32 ups";
  EXPECT_TRUE(has(GemmKind::kAdd, 2048, 6144));
  EXPECT_FALSE(has(GemmKind::kAdd, 2048, 6144 + kChunk));
  EXPECT_FALSE(has(GemmKind::kAdd, 2048 + 8, 6144));
  EXPECT_FALSE(has(GemmKind::kStore, 2048, 2048));
  EXPECT_FALSE(has(GemmKind::kStoreSilu, 2048, 2048));
}

}  // namespace
}  // namespace qtts
