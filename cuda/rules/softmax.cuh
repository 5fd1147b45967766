// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RULES_SOFTMAX_CUH_
#define QTTS_CUDA_RULES_SOFTMAX_CUH_

#include <cstdint>
#include <type_traits>

#include "rules/activation.cuh"
#include "rules/splits.h"
#include "runtime/device_math.cuh"

// Attention's softmax: of one split of the context (splits.h) by eight warps, and the combination of splits.
//
// kLanes lanes share a position, eight elements of the head each, so that a warp has 32 / kLanes positions at once and
// goes through a split in kTurns turns. A group of lanes sums over its turns; groups are joined pairwise, warps in
// order, splits in order. Each step keeps the largest score, the sum of the weights and the weighted sum of values; a
// part that has seen no position has the largest score -infinity and counts as 0.
namespace qtts::cuda {

// The first position that `position` sees, by the window of `s`; 0: all.
template <typename Stack>
__device__ __forceinline__ int FirstSeen(const Stack& s, int position) {
  return s.window > 0 ? max(0, position + 1 - s.window) : 0;
}
// The first split that it sees, and how many.
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

// Partial result of a group of lanes for a split and kQueries heads that share its keys; a lane has eight elements of
// y.
template <int kQueries>
struct SoftmaxPart {
  float most[kQueries], sum[kQueries], y[kQueries][8];

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int g = 0; g < kQueries; ++g) {
      most[g] = -INFINITY;
      sum[g] = 0;
#pragma unroll
      for (int e = 0; e < 8; ++e) y[g][e] = 0;
    }
  }
};

// Computes the scores of the positions of all turns, and the largest; valid(t): whether turn t's position is seen.
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
      scores[g][t] = valid(t) ? scores[g][t] * scale : -INFINITY;
      part->most[g] = fmaxf(part->most[g], scores[g][t]);
    }
  }
}

// Computes the weights of these scores, their sum and that of the values. kSingle: a group has one position, whose
// score is the largest.
template <bool kSingle, typename T, int kQueries, int kTurns, typename Valid>
__device__ __forceinline__ void WeighValues(const float (&scores)[kQueries][kTurns], const Eight<T> (&values)[kTurns],
                                            const Valid& valid, SoftmaxPart<kQueries>* part) {
#pragma unroll
  for (int t = 0; t < kTurns; ++t) {
#pragma unroll
    for (int g = 0; g < kQueries; ++g) {
      const float weight = !valid(t) ? 0 : kSingle ? 1 : Exponential<T>(scores[g][t] - part->most[g]);
      part->sum[g] += weight;
#pragma unroll
      for (int e = 0; e < 8; ++e) part->y[g][e] += weight * ElementOf(values[t], e);
    }
  }
}

// Two parts joined: the larger of their largest scores, and the factors of what each has summed.
struct JoinFactors {
  float largest, own, other;
};
template <typename T>
__device__ __forceinline__ JoinFactors FactorsToJoin(float most, float other_most) {
  const float largest = fmaxf(most, other_most);
  const float base = largest == -INFINITY ? 0 : largest;  // where neither has a position factors are 0, too
  return {largest, Exponential<T>(most - base), Exponential<T>(other_most - base)};
}
__device__ __forceinline__ float JoinedSum(float own, float own_factor, float other, float other_factor) {
  return __fmaf_rn(own, own_factor, other * other_factor);
}

// Joins a warp's groups of lanes; all have the result.
template <int kLanes, typename T, int kQueries>
__device__ __forceinline__ void JoinLanes(SoftmaxPart<kQueries>* part) {
#pragma unroll
  for (int offset = kLanes; offset < 32; offset *= 2) {
    SoftmaxPart<kQueries> other;
#pragma unroll
    for (int g = 0; g < kQueries; ++g) {
      other.most[g] = __shfl_xor_sync(~0U, part->most[g], offset);
      other.sum[g] = __shfl_xor_sync(~0U, part->sum[g], offset);
#pragma unroll
      for (int e = 0; e < 8; ++e) other.y[g][e] = __shfl_xor_sync(~0U, part->y[g][e], offset);
    }
#pragma unroll
    for (int g = 0; g < kQueries; ++g) {
      const JoinFactors factors = FactorsToJoin<T>(part->most[g], other.most[g]);
      part->most[g] = factors.largest;
      part->sum[g] = JoinedSum(part->sum[g], factors.own, other.sum[g], factors.other);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        part->y[g][e] = JoinedSum(part->y[g][e], factors.own, other.y[g][e], factors.other);
      }
    }
  }
}

// Joins lanes in two steps, for one position of each group: here the largest scores and the sums, then in
// JoinPositions(), by any lanes, the values. The positions are a tree's leaves, from place 32 / kLanes on; the parts at
// places 2 i and 2 i + 1 are joined to that at place i. keep(place, factor) gets each part's factor.
template <int kLanes, typename T, typename Keep>
__device__ __forceinline__ void JoinLaneSums(unsigned lane, float* most, float* sum, const Keep& keep) {
#pragma unroll
  for (int offset = kLanes; offset < 32; offset *= 2) {
    const float other_most = __shfl_xor_sync(~0U, *most, offset);
    const float other_sum = __shfl_xor_sync(~0U, *sum, offset);
    const JoinFactors factors = FactorsToJoin<T>(*most, other_most);
    if (lane % offset == 0) keep((32 + lane) / offset, factors.own);
    *most = factors.largest;
    *sum = JoinedSum(*sum, factors.own, other_sum, factors.other);
  }
}
// Joins the values of kPositions positions from the first-th on; values(n, y) forms the weighed values of the n-th one.
// The result for all positions is that of JoinLanes() in the first group of lanes.
template <int kPositions, int kAll, typename Values>
__device__ __forceinline__ void JoinPositions(const float* factors, int first, const Values& values, float (&y)[8]) {
  if constexpr (kPositions == 1) {
    values(first, y);
  } else {
    constexpr int kHalf = kPositions / 2;
    JoinPositions<kHalf, kAll>(factors, first, values, y);
    float other[8];
    JoinPositions<kHalf, kAll>(factors, first + kHalf, values, other);
    const int place = (kAll + first) / kHalf;
#pragma unroll
    for (int e = 0; e < 8; ++e) y[e] = JoinedSum(y[e], factors[place], other[e], factors[place + 1]);
  }
}

// A warp's factor, from its largest score and that of all, and its part of a sum, added warp by warp in order.
template <typename T>
__device__ __forceinline__ float WarpFactor(float most, float largest) {
  return Exponential<T>(most - largest);
}
__device__ __forceinline__ float WithWarp(float factor, float sum, float all) { return __fmaf_rn(factor, sum, all); }

// Combines the warps' partial results for kElements elements of a head, in order. At least one warp has a position.
template <int kElements>
struct MergedWarps {
  float largest, total, value[kElements];
};
template <typename T, int kWarps, int kElements>
__device__ __forceinline__ MergedWarps<kElements> MergeWarpParts(const float (&maxima)[kWarps],
                                                                 const float (&sums)[kWarps],
                                                                 const float (&y)[kWarps][kElements]) {
  MergedWarps<kElements> merged = {maxima[0], 0, {}};
#pragma unroll
  for (int w = 1; w < kWarps; ++w) merged.largest = fmaxf(merged.largest, maxima[w]);
  float factors[kWarps];  // 0 of warps without a position
#pragma unroll
  for (int w = 0; w < kWarps; ++w) factors[w] = WarpFactor<T>(maxima[w], merged.largest);
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    merged.total = WithWarp(factors[w], sums[w], merged.total);
#pragma unroll
    for (int e = 0; e < kElements; ++e) merged.value[e] = WithWarp(factors[w], y[w][e], merged.value[e]);
  }
  return merged;
}

// Returns a split's factor from its largest score and that of all splits. AddSplit() adds its part to the sums, split
// by split in order; attention's result is value / total.
template <typename T>
__device__ __forceinline__ float SplitFactor(float most, float largest) {
  return Exponential<T>(most - largest);
}
__device__ __forceinline__ void AddSplit(float factor, float sum, float y, float* total, float* value) {
  *total = __fmaf_rn(factor, sum, *total);
  *value = __fmaf_rn(factor, y, *value);
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RULES_SOFTMAX_CUH_
