// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_GEMM_INT8_CUH_
#define QTTS_CUDA_GEMM_INT8_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "runtime/instructions.cuh"

// Weights of 8 bits (int8.h) to BF16 in registers.
namespace qtts::cuda::gemm {

// A group's scale, twice, and -128 times it, which is exact.
struct Int8Factor {
  uint32_t scale, offset;
};
// Makes the factor from the scale's bits in the low half of `bits`, or in the high half.
__device__ __forceinline__ Int8Factor LowInt8Factor(uint32_t bits) {
  constexpr uint32_t kMinus128 = 0xC300C300, kMinusZero = 0x80008000;
  const uint32_t scale = __byte_perm(bits, 0, 0x1010);
  return {scale, FmaBf16x2(scale, kMinus128, kMinusZero)};
}
__device__ __forceinline__ Int8Factor HighInt8Factor(uint32_t bits) { return LowInt8Factor(bits >> 16); }

// Returns the values of a lane's eight neighbouring columns: each BF16(code * scale), as Int8Value().
__device__ __forceinline__ uint4 UnpackInt8(const uint2& unit, const Int8Factor& factor) {
  constexpr uint32_t kMagnitudes = 0x007F007F, k128 = 0x43004300, kSigns = 0x80008000;
  const auto values = [&](uint32_t word) {
    return FmaBf16x2((word & kMagnitudes) | k128, factor.scale, factor.offset) ^ (word & kSigns);
  };
  const auto swapped = [](uint32_t word) { return __byte_perm(word, 0, 0x2301); };
  return {values(unit.x), values(swapped(unit.x)), values(unit.y), values(swapped(unit.y))};
}

// Returns a group's scale times kInt8ReducedFactor, twice, from its bits in the low or in the high half of `bits`.
__device__ __forceinline__ uint32_t LowReducedInt8Factor(uint32_t bits) {
  return FmaBf16x2(__byte_perm(bits, 0, 0x1010), kInt8ReducedFactor * 0x10001U, 0x80008000);
}
__device__ __forceinline__ uint32_t HighReducedInt8Factor(uint32_t bits) {
  return FmaBf16x2(__byte_perm(bits, 0, 0x3232), kInt8ReducedFactor * 0x10001U, 0x80008000);
}
// Returns the reduced values of a lane's eight neighbouring columns. A magnitude and its sign are, as they stand, the
// subnormal BF16 number code * 2^-133; one product scales them and rounds.
__device__ __forceinline__ uint4 UnpackReducedInt8(const uint2& unit, uint32_t factor) {
  constexpr uint32_t kSignsAndMagnitudes = 0x807F807F, kMinusZero = 0x80008000;
  const auto values = [&](uint32_t word) { return FmaBf16x2(word & kSignsAndMagnitudes, factor, kMinusZero); };
  const auto swapped = [](uint32_t word) { return __byte_perm(word, 0, 0x2301); };
  return {values(unit.x), values(swapped(unit.x)), values(unit.y), values(swapped(unit.y))};
}

}  // namespace qtts::cuda::gemm

#endif  // QTTS_CUDA_GEMM_INT8_CUH_
