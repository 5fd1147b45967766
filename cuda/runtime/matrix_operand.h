// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_MATRIX_OPERAND_H_
#define QTTS_CUDA_RUNTIME_MATRIX_OPERAND_H_

#include <cstdint>

// The operand that warpgroups' matrix instruction (warpgroup.cuh) reads from shared memory: rows of 128 bytes, 64
// elements of the inner dimension, in groups of 8 rows. The 16-byte units of row r of a group lie at unit ^ r, the
// 128-byte swizzle of the instruction. constexpr, for host and device: tests run it.
namespace qtts::cuda {

inline constexpr int kOperandGroupRows = 8;
inline constexpr int kOperandRowElements = 64;
inline constexpr int kOperandGroupBytes = 1024;

// Returns the place of column `k` of a chunk of 32: 16 of one k-step, then 16 of the other. An order that gives each
// k-step the columns that mma.sync multiplies together where a lane has 8 neighbouring columns of both operands.
constexpr int PlaceInChunk(int k) { return k / 4 % 2 * 16 + k / 2 % 2 * 8 + k / 8 * 2 + k % 2; }
static_assert(PlaceInChunk(0) == 0 && PlaceInChunk(2) == 8 && PlaceInChunk(4) == 16 && PlaceInChunk(31) == 31);
// Returns the column at a place.
constexpr int ColumnInChunk(int place) { return place % 8 / 2 * 8 + place / 16 * 4 + place / 8 % 2 * 2 + place % 2; }
static_assert(ColumnInChunk(PlaceInChunk(13)) == 13 && ColumnInChunk(PlaceInChunk(22)) == 22);

// Returns the descriptor of the operand for a k-step of 16, `address` that of the first group (a multiple of 1024) plus
// 32 bytes for each k-step before. Fields in units of 16 bytes: bits 0 to 13 the address, 16 to 29 the leading offset
// (not used with a swizzle), 32 to 45 the offset between groups of 8 rows, bits 62 and 63: 1, the swizzle of 128 bytes.
constexpr uint64_t MatrixDescriptor(uint32_t address) {
  return static_cast<uint64_t>((address & 0x3FFFFU) >> 4) | uint64_t{1} << 16 |
         static_cast<uint64_t>(kOperandGroupBytes >> 4) << 32 | uint64_t{1} << 62;
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_MATRIX_OPERAND_H_
