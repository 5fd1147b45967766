// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RULES_SCORE_POWER_H_
#define QTTS_CUDA_RULES_SCORE_POWER_H_

#include <bit>
#include <cmath>
#include <cstdint>

// Weights of attention as powers of two, for device code and for tests on the host.
//
// exp(score) = 2^exponent · mantissa, where the exponent is the integer nearest to score · log2 e, and the mantissa,
// between 2^-0.5 and 2^0.5, depends on the score alone. A partial result is relative to an exponent that none of its
// scores exceeds. Going over to a larger one multiplies by a power of two, which is exact: partial results joined in
// one order are the same bits, whatever each was relative to, unless a weight or a weighed value falls below 2^-125.
namespace qtts::cuda {

#ifdef __CUDACC__
#define QTTS_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define QTTS_HOST_DEVICE inline
#endif

// The exponent of a part without positions: its factor is 0 beside any score's.
inline constexpr int kNoExponent = -(1 << 24);

struct ScorePower {
  int exponent;
  float fraction;  // of the binary logarithm, between -0.5 and 0.5
};

QTTS_HOST_DEVICE float FloatOfBits(int bits) {
#ifdef __CUDA_ARCH__
  return __int_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}
QTTS_HOST_DEVICE int BitsOfFloat(float value) {
#ifdef __CUDA_ARCH__
  return __float_as_int(value);
#else
  return std::bit_cast<int>(value);
#endif
}

// Splits a score of a magnitude up to 2^21. kExact: to the precision of F32, for models in F32.
template <bool kExact>
QTTS_HOST_DEVICE ScorePower PowerOf(float score) {
  constexpr float kLog2E = 1.44269502F, kRest = 1.92596303e-8F;
  // Added to a number of a magnitude up to 2^22 it leaves the nearest integer in the low bits.
  constexpr float kRounder = 12582912.0F;
  constexpr int kRounderBits = 0x4B400000;
  const float rounded = std::fma(score, kLog2E, kRounder);
  float fraction = std::fma(score, kLog2E, kRounder - rounded);
  if (kExact) fraction = std::fma(score, kRest, fraction);
  return {BitsOfFloat(rounded) - kRounderBits, fraction};
}
QTTS_HOST_DEVICE int ExponentOf(float score) { return PowerOf<false>(score).exponent; }

// Returns 2^exponent of an exponent up to 0; 0 below -126.
QTTS_HOST_DEVICE float PowerOfTwo(int exponent) {
  return exponent < -126 ? 0.0F : FloatOfBits((exponent + 127) * (1 << 23));
}

// Returns exp(score) relative to 2^exponent, which is not below the score's; 0 below 2^-125.
template <bool kExact>
QTTS_HOST_DEVICE float WeightOf(float score, int exponent) {
  const ScorePower power = PowerOf<kExact>(score);
  float mantissa = 0;
#ifdef __CUDA_ARCH__
  if (kExact) {
    mantissa = exp2f(power.fraction);
  } else {
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(mantissa) : "f"(power.fraction));
  }
#else
  mantissa = std::exp2(power.fraction);
#endif
  const int shift = power.exponent - exponent;
  return shift < -125 ? 0.0F : FloatOfBits(BitsOfFloat(mantissa) + shift * (1 << 23));
}

// Two parts joined: the larger of their exponents, and the factors of what each has summed.
struct JoinFactors {
  int exponent;
  float own, other;
};
QTTS_HOST_DEVICE JoinFactors FactorsToJoin(int exponent, int other) {
  const int larger = exponent > other ? exponent : other;
  return {larger, PowerOfTwo(exponent - larger), PowerOfTwo(other - larger)};
}
// Returns the sum. The factors are powers of two: it is rounded once, as a plain sum.
QTTS_HOST_DEVICE float JoinedSum(float own, float own_factor, float other, float other_factor) {
  return std::fma(own, own_factor, other * other_factor);
}

}  // namespace qtts::cuda

#undef QTTS_HOST_DEVICE

#endif  // QTTS_CUDA_RULES_SCORE_POWER_H_
