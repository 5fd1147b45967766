// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_GEMM_INT8_H_
#define QTTS_CUDA_GEMM_INT8_H_

#include <bit>
#include <cstddef>
#include <cstdint>

#include "rules/chunk.h"

// Weights of 8 bits: their values, and their order in memory.
//
// A weight's value is BF16(code * scale): an integer from -127 to 127, and a BF16 scale for each group, a chunk of 32
// columns of one weight row. Kernels compute the value and then multiply in BF16. The results therefore are, bit for
// bit, those of a BF16 matrix of these values, whatever kernel computes them.
//
// A code lies as magnitude and sign, since a magnitude becomes BF16 by two instructions: 0x4300 + magnitude is the BF16
// value 128 + magnitude, and one FMA gives BF16(magnitude * scale). Rounding is symmetric, so the sign may come last.
//
// constexpr, for kernels and for tests on the host.
namespace qtts::cuda::gemm {

constexpr int kMaxInt8Code = 127;

constexpr float FloatOfBf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Rounds to BF16, to nearest even. `x` is not NaN.
constexpr uint16_t Bf16OfFloat(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
}

// Reduced values are a weight's values times 2^-kInt8ReducedExponent. The persistent kernel multiplies them, since they
// take fewer instructions (UnpackReducedInt8()), and its sums by kInt8SumFactor. Both are exact, so its results are
// those of the values themselves.
constexpr int kInt8ReducedExponent = 32;
constexpr float kInt8SumFactor = 0x1p32F;
constexpr uint16_t kInt8ReducedFactor = 0x7200;  // 2^(133 - kInt8ReducedExponent), in BF16

// Returns the scale of a group from its largest magnitude, rounded up, so that no code is above 127; as for the CPU's
// int8. A group with a value that is not finite has the scale NaN, one of zeros or nearly so the scale 0. Between the
// limits, 1e-26 and 1.7e10, no reduced value is subnormal and no reduced scale infinite; larger weights become the
// limit.
constexpr uint16_t Int8Scale(float largest) {
  constexpr float kLeast = 1e-26F;
  constexpr uint16_t kNaN = 0x7FC0;
  constexpr uint32_t kInfinity = 0x7F800000;
  constexpr uint32_t kLargest = 0x4CFF;
  if ((std::bit_cast<uint32_t>(largest) & kInfinity) == kInfinity) return kNaN;
  if (!(largest > kLeast)) return 0;
  const uint32_t scale = (std::bit_cast<uint32_t>(largest / static_cast<float>(kMaxInt8Code)) + 0xFFFFU) >> 16;
  return static_cast<uint16_t>(scale < kLargest ? scale : kLargest);
}

constexpr bool IsNaNScale(uint16_t scale) { return (scale & 0x7F80U) == 0x7F80U; }

// Returns the code of a finite weight: to nearest even.
constexpr int Int8Code(float weight, uint16_t scale) {
  constexpr float kRounder = 12582912.0F;  // 1.5 * 2^23: a sum with it has no fraction
  if (scale == 0 || IsNaNScale(scale)) return 0;
  const float quotient = weight / FloatOfBf16(scale);
  const float most = static_cast<float>(kMaxInt8Code);
  const float clamped = quotient > most ? most : quotient < -most ? -most : quotient;
  return static_cast<int>((clamped + kRounder) - kRounder);
}

// Returns the BF16 bits of a weight's value.
constexpr uint16_t Int8Value(int code, uint16_t scale) {
  if (IsNaNScale(scale)) return scale;
  return Bf16OfFloat(static_cast<float>(code) * FloatOfBf16(scale));
}

// Eight neighbouring codes, as one lane holds them (UnitFragment in runtime/fragment.h), in two words: the first has
// columns 0 to 3. Each half of a word has two columns, the low half columns 0 and 2, the high one 1 and 3. Its low byte
// is the earlier column's magnitude with the later one's sign, its high byte the later one's magnitude with the
// earlier one's sign. Both signs therefore stand at the top of a half after at most a swap of its bytes.
struct Int8Unit {
  uint32_t words[2];
};
constexpr Int8Unit PackInt8(const int (&codes)[8]) {
  Int8Unit unit = {};
  for (int i = 0; i < 8; ++i) {
    const uint32_t magnitude = static_cast<uint32_t>(codes[i] < 0 ? -codes[i] : codes[i]);
    const uint32_t sign = codes[i] < 0 ? 0x80U : 0U;
    const bool later = i % 4 >= 2;
    const int half = i % 2 * 16;
    unit.words[i / 4] |= magnitude << (half + (later ? 8 : 0)) | sign << (half + (later ? 0 : 8));
  }
  return unit;
}

// Where a packed matrix has its codes and scales: [tile][chunk], codes and scales of a chunk one after the other.
// Codes: [lane][half of the tile's rows] units of 8 bytes; lane l has columns 8 (l % 4) and on of row l / 4 of the
// half. Scales: [row % 8][half], 2 bytes each.
struct Int8Layout {
  static constexpr int kUnitBytes = sizeof(Int8Unit);
  static constexpr int kCodeBytes = 32 * kUnitBytes;        // of a chunk of 8 rows
  static constexpr int kScaleBytes = 8 * sizeof(uint16_t);  // the same
  static constexpr int kChunkBytes = kCodeBytes + kScaleBytes;

  int tiles, halves, chunks;

  constexpr size_t bytes() const {
    return static_cast<size_t>(tiles) * static_cast<size_t>(chunks) * static_cast<size_t>(halves * kChunkBytes);
  }

  // Returns the byte of the unit with `column` (a multiple of 8) of weight row `row`, of all tiles' rows.
  constexpr int64_t UnitAt(int64_t row, int column) const {
    const int64_t lane = row % 8 * 4 + column % kChunk / 8;
    return ChunkAt(row, column) + (lane * halves + HalfOf(row)) * kUnitBytes;
  }
  // Returns the byte of the scale of the group with `column` of weight row `row`.
  constexpr int64_t ScaleAt(int64_t row, int column) const {
    return ChunkAt(row, column) + int64_t{kCodeBytes} * halves +
           (row % 8 * halves + HalfOf(row)) * static_cast<int64_t>(sizeof(uint16_t));
  }

 private:
  constexpr int64_t HalfOf(int64_t row) const { return row / 8 % halves; }
  constexpr int64_t ChunkAt(int64_t row, int column) const {
    return (row / (8 * halves) * chunks + column / kChunk) * halves * kChunkBytes;
  }
};

}  // namespace qtts::cuda::gemm

#endif  // QTTS_CUDA_GEMM_INT8_H_
