// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_GEMM_SWIZZLED_H_
#define QTTS_CUDA_GEMM_SWIZZLED_H_

#include <cstdint>

#include "rules/chunk.h"
#include "runtime/matrix_operand.h"

// The swizzled layout of operands, in which the warpgroup's matrix instruction reads them from shared memory: a tile of
// activations is one bulk copy. The functions are constexpr, for host and device: tests run them.
//
// Columns: blocks of 64, two chunks. Within a chunk an order that gives each of its two k-steps of 16 the columns that
// the kernels for few rows multiply together: columns 8 i .. 8 i + 3 the first, 8 i + 4 .. 8 i + 7 the second
// (rules/product.cuh; a lane of those kernels has 8 neighbouring columns of both operands). The order within a k-step
// is that of the registers of the other operand, which are the packed weights as they are.
//
// Memory: [block of columns][group of 8 rows][8 rows][128 bytes], the 16-byte units of row r at u ^ r: the 128-byte
// swizzle of the matrix instruction.
namespace qtts::cuda::gemm {

inline constexpr int kSwizzledColumns = 64;
inline constexpr int kSwizzledRows = 8;
inline constexpr int kSwizzledGroupBytes = kOperandGroupBytes;  // of 8 rows of a block
inline constexpr int kChunkWords = kChunk / 2;

constexpr int64_t PaddedRows(int64_t rows) { return (rows + kSwizzledRows - 1) / kSwizzledRows * kSwizzledRows; }
constexpr int PaddedColumns(int columns) {
  return (columns + kSwizzledColumns - 1) / kSwizzledColumns * kSwizzledColumns;
}

// Returns the bytes from the beginning of `rows` rows to row `row`'s 16-byte unit `unit` of a block: a chunk has four.
constexpr int64_t UnitOffset(int64_t rows, int64_t row, int block, int unit) {
  const int64_t group = block * (PaddedRows(rows) / kSwizzledRows) + row / kSwizzledRows;
  const int in_group = static_cast<int>(row % kSwizzledRows);
  return group * kSwizzledGroupBytes + in_group * (kSwizzledColumns * 2) + (unit ^ in_group) * 16;
}
// Returns the same to an element.
constexpr int64_t ElementOffset(int64_t rows, int64_t row, int column) {
  const int place = column % kSwizzledColumns / kChunk * kChunk + PlaceInChunk(column % kChunk);
  return UnitOffset(rows, row, column / kSwizzledColumns, place / 8) + place % 8 * 2;
}
// Returns the bytes of `rows` rows of `columns` columns.
constexpr int64_t SwizzledBytes(int64_t rows, int columns) { return PaddedRows(rows) * PaddedColumns(columns) * 2; }

}  // namespace qtts::cuda::gemm

#endif  // QTTS_CUDA_GEMM_SWIZZLED_H_
