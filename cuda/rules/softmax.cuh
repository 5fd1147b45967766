// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RULES_SOFTMAX_CUH_
#define QTTS_CUDA_RULES_SOFTMAX_CUH_

#include <cstdint>
#include <type_traits>

#include "rules/score_power.h"
#include "rules/splits.h"
#include "runtime/device_math.cuh"

// Attention's softmax: of one split of the context (splits.h) by eight warps, and the combination of splits.
//
// kLanes lanes share a position, eight elements of the head each, so that a warp has 32 / kLanes positions at once and
// goes through a split in kTurns turns. A group of lanes sums over its turns; groups are joined pairwise, warps in
// order, splits in order. Each step keeps an exponent, and relative to it (score_power.h) the sum of the weights and
// the weighted sum of values. The order of additions decides the bits, the exponents do not: a kernel may sum relative
// to any exponent that covers its scores, and go over to a larger one when it likes.
namespace qtts::cuda {

// Returns the first position that `position` sees, by the window of `s`; 0: all.
template <typename Stack>
__device__ __forceinline__ int FirstSeen(const Stack& s, int position) {
  return s.window > 0 ? max(0, position + 1 - s.window) : 0;
}
// Returns the first split that it sees, and how many.
template <typename Stack>
__device__ __forceinline__ int FirstSplit(const Stack& s, int position) {
  return FirstSeen(s, position) / kSplitPositions;
}
template <typename Stack>
__device__ __forceinline__ int UsedSplits(const Stack& s, int position) {
  return position / kSplitPositions - FirstSplit(s, position) + 1;
}

// Eight elements of a head as they lie in memory. In BF16 a plain uint4: the compiler makes more of any struct around
// it.
struct EightFloats {
  uint4 low, high;
};
template <typename T>
using Eight = std::conditional_t<sizeof(T) == 4, EightFloats, uint4>;

__device__ __forceinline__ void LoadEight(const __nv_bfloat16* p, uint4* v) {
  *v = LoadL2(reinterpret_cast<const uint4*>(p));
}
__device__ __forceinline__ void LoadEight(const float* p, EightFloats* v) {
  v->low = LoadL2(reinterpret_cast<const uint4*>(p));
  v->high = LoadL2(reinterpret_cast<const uint4*>(p) + 1);
}
__device__ __forceinline__ float ElementOf(const uint4& v, int i) {
  const uint32_t word = i / 2 == 0 ? v.x : i / 2 == 1 ? v.y : i / 2 == 2 ? v.z : v.w;
  return i % 2 == 0 ? LowBf16(word) : HighBf16(word);
}
__device__ __forceinline__ float ElementOf(const EightFloats& v, int i) {
  const uint4& u = i < 4 ? v.low : v.high;
  return __uint_as_float(i % 4 == 0 ? u.x : i % 4 == 1 ? u.y : i % 4 == 2 ? u.z : u.w);
}

// Models in F32 get weights to F32's precision.
template <typename T>
inline constexpr bool kExactWeights = sizeof(T) == 4;

// Partial result of a group of lanes for a split and kQueries heads that share its keys; a lane has eight elements of
// y.
template <int kQueries>
struct SoftmaxPart {
  int exponent[kQueries];
  float sum[kQueries], y[kQueries][8];

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int g = 0; g < kQueries; ++g) {
      exponent[g] = kNoExponent;
      sum[g] = 0;
#pragma unroll
      for (int e = 0; e < 8; ++e) y[g][e] = 0;
    }
  }
};

// Computes the scores of the positions of all turns, and raises the part's exponent to theirs; valid(t): whether turn
// t's position is seen.
template <int kLanes, typename Key, int kQueries, int kTurns, typename Valid>
__device__ __forceinline__ void ScorePositions(const float (&query)[kQueries][8], const Key (&keys)[kTurns],
                                               float scale, const Valid& valid, float (&scores)[kQueries][kTurns],
                                               SoftmaxPart<kQueries>* part) {
#pragma unroll
  for (int t = 0; t < kTurns; ++t) {
#pragma unroll
    for (int g = 0; g < kQueries; ++g) {
      scores[g][t] = 0;
#pragma unroll
      for (int e = 0; e < 8; ++e) scores[g][t] += query[g][e] * ElementOf(keys[t], e);
    }
  }
  // Here and below all exchanges come first, so that none waits for another.
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    float others[kQueries][kTurns];
#pragma unroll
    for (int t = 0; t < kTurns; ++t) {
#pragma unroll
      for (int g = 0; g < kQueries; ++g) others[g][t] = __shfl_xor_sync(~0U, scores[g][t], offset);
    }
#pragma unroll
    for (int t = 0; t < kTurns; ++t) {
#pragma unroll
      for (int g = 0; g < kQueries; ++g) scores[g][t] += others[g][t];
    }
  }
#pragma unroll
  for (int t = 0; t < kTurns; ++t) {
#pragma unroll
    for (int g = 0; g < kQueries; ++g) {
      scores[g][t] *= scale;
      if (valid(t)) part->exponent[g] = max(part->exponent[g], ExponentOf(scores[g][t]));
    }
  }
}

// Computes the weights of these scores, their sum and that of the values.
template <typename T, int kQueries, int kTurns, typename Valid>
__device__ __forceinline__ void WeighValues(const float (&scores)[kQueries][kTurns], const Eight<T> (&values)[kTurns],
                                            const Valid& valid, SoftmaxPart<kQueries>* part) {
#pragma unroll
  for (int t = 0; t < kTurns; ++t) {
#pragma unroll
    for (int g = 0; g < kQueries; ++g) {
      const float weight = valid(t) ? WeightOf<kExactWeights<T>>(scores[g][t], part->exponent[g]) : 0;
      part->sum[g] += weight;
#pragma unroll
      for (int e = 0; e < 8; ++e) part->y[g][e] += weight * ElementOf(values[t], e);
    }
  }
}

// Joins a warp's groups of lanes; all have the result.
template <int kLanes, int kQueries>
__device__ __forceinline__ void JoinLanes(SoftmaxPart<kQueries>* part) {
#pragma unroll
  for (int offset = kLanes; offset < 32; offset *= 2) {
    SoftmaxPart<kQueries> other;
#pragma unroll
    for (int g = 0; g < kQueries; ++g) {
      other.exponent[g] = __shfl_xor_sync(~0U, part->exponent[g], offset);
      other.sum[g] = __shfl_xor_sync(~0U, part->sum[g], offset);
#pragma unroll
      for (int e = 0; e < 8; ++e) other.y[g][e] = __shfl_xor_sync(~0U, part->y[g][e], offset);
    }
#pragma unroll
    for (int g = 0; g < kQueries; ++g) {
      const JoinFactors factors = FactorsToJoin(part->exponent[g], other.exponent[g]);
      part->exponent[g] = factors.exponent;
      part->sum[g] = JoinedSum(part->sum[g], factors.own, other.sum[g], factors.other);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        part->y[g][e] = JoinedSum(part->y[g][e], factors.own, other.y[g][e], factors.other);
      }
    }
  }
}

// Adds a warp's part of a sum, or a split's, to those before it.
__device__ __forceinline__ float WithPart(float factor, float part, float all) { return __fmaf_rn(factor, part, all); }

// Combines the warps' partial results for kElements elements of a head, in order.
template <int kElements>
struct MergedWarps {
  int exponent;
  float total, value[kElements];
};
template <int kWarps, int kElements>
__device__ __forceinline__ MergedWarps<kElements> MergeWarpParts(const int (&exponents)[kWarps],
                                                                 const float (&sums)[kWarps],
                                                                 const float (&y)[kWarps][kElements]) {
  MergedWarps<kElements> merged = {exponents[0], 0, {}};
#pragma unroll
  for (int w = 1; w < kWarps; ++w) merged.exponent = max(merged.exponent, exponents[w]);
  float factors[kWarps];  // 0 of warps without a position
#pragma unroll
  for (int w = 0; w < kWarps; ++w) factors[w] = PowerOfTwo(exponents[w] - merged.exponent);
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    merged.total = WithPart(factors[w], sums[w], merged.total);
#pragma unroll
    for (int e = 0; e < kElements; ++e) merged.value[e] = WithPart(factors[w], y[w][e], merged.value[e]);
  }
  return merged;
}

// The splits of a row combined so far, in order, for one element of a head: attention's result is value / total. A row
// with a single split takes the value / total of the split.
struct SplitSums {
  int exponent = kNoExponent;
  float total = 0, value = 0;

  __device__ __forceinline__ void Add(int other, float sum, float y) {
    const JoinFactors factors = FactorsToJoin(exponent, other);
    exponent = factors.exponent;
    total = JoinedSum(total, factors.own, sum, factors.other);
    value = JoinedSum(value, factors.own, y, factors.other);
  }
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RULES_SOFTMAX_CUH_
