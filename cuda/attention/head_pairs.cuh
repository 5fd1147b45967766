// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_ATTENTION_HEAD_PAIRS_CUH_
#define QTTS_CUDA_ATTENTION_HEAD_PAIRS_CUH_

#include "attention/attend_block.cuh"
#include "gemm/swizzled.h"
#include "rules/softmax.cuh"
#include "runtime/device_math.cuh"

// A warp does what rules/softmax.cuh describes for eight, in the same order; "warp w" below is the w-th of those eight.
// Two groups of 16 lanes share a warp there: its position pair. Position p of a turn of 16 belongs to warp p / 2.
//
// Which lane forms a sum is free, so lanes are laid out twice. Scores: eight lanes share a position, each with the
// parts of two of the 16 lanes; sums of several positions are reduced at once, so that each lane ends with one score
// instead of all lanes with all. Values: a lane has four elements of all positions, so nothing is exchanged.
namespace qtts::cuda::attention {

using Bf16 = __nv_bfloat16;
constexpr int kPair = 2;  // query heads that share a key head
constexpr int kHeadDim = 128;
constexpr int kRowBytes = kHeadDim * 2;
constexpr int kTurnPositions = 16;
constexpr int kPositionLanes = 8;  // lanes that share a position's score
constexpr int kBatch = 4;          // positions that a lane scores before sums are reduced

// Returns whether a call is of this shape, without a window.
inline bool AreHeadPairs(Precision precision, const AttendArguments& a) {
  return precision == Precision::kBF16 && a.head_dim == kHeadDim && a.heads == kPair * a.kv_heads && a.window == 0 &&
         a.y_stride % 4 == 0;
}

// A lane's parts of the two queries, in F32: those of lanes `lane` % 8 and `lane` % 8 + 8 of the order.
struct LaneQueries {
  float parts[kPair][2][8];

  __device__ __forceinline__ void Load(const float (&q)[kPair][kHeadDim], unsigned lane) {
#pragma unroll
    for (int g = 0; g < kPair; ++g) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        LoadQuery(&q[g][(lane % kPositionLanes + half * kPositionLanes) * 8], true, &parts[g][half]);
      }
    }
  }

  // Computes this lane's parts of the products of both queries with one key.
  __device__ __forceinline__ void Multiply(const uint4& low, const uint4& high, float (&products)[kPair]) const {
#pragma unroll
    for (int g = 0; g < kPair; ++g) {
      float first = 0, second = 0;
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        first += parts[g][0][e] * ElementOf(low, e);
        second += parts[g][1][e] * ElementOf(high, e);
      }
      products[g] = first + second;
    }
  }
};

// Adds products over eight lanes, by the order's offsets 4, 2, 1. The lane has the sum of position lane % 8 / 2 of the
// batch and query lane % 2.
__device__ __forceinline__ float ReduceBatch(const float (&products)[kBatch][kPair], unsigned lane) {
  const bool upper = (lane & 4) != 0, second = (lane & 2) != 0, odd = (lane & 1) != 0;
  float two[2][kPair];
#pragma unroll
  for (int c = 0; c < 2; ++c) {
#pragma unroll
    for (int g = 0; g < kPair; ++g) {
      const float kept = upper ? products[c + 2][g] : products[c][g];
      const float sent = upper ? products[c][g] : products[c + 2][g];
      two[c][g] = kept + __shfl_xor_sync(~0U, sent, 4);
    }
  }
  float one[kPair];
#pragma unroll
  for (int g = 0; g < kPair; ++g) {
    const float kept = second ? two[1][g] : two[0][g];
    const float sent = second ? two[0][g] : two[1][g];
    one[g] = kept + __shfl_xor_sync(~0U, sent, 2);
  }
  const float kept = odd ? one[1] : one[0];
  const float sent = odd ? one[0] : one[1];
  return kept + __shfl_xor_sync(~0U, sent, 1);
}

// Loads four elements of a row of values.
__device__ __forceinline__ void LoadFour(const Bf16* row, unsigned lane, float (&values)[4]) {
  const uint2 v = reinterpret_cast<const uint2*>(row)[lane];
  values[0] = LowBf16(v.x);
  values[1] = HighBf16(v.x);
  values[2] = LowBf16(v.y);
  values[3] = HighBf16(v.y);
}

__device__ __forceinline__ void Clear(float (*values)[kPair][4]) {
#pragma unroll
  for (int g = 0; g < kPair; ++g) {
#pragma unroll
    for (int e = 0; e < 4; ++e) (*values)[g][e] = 0;
  }
}
// Adds 0, as a turn or warp that is left out would: the sum of 0 and -0, to which a value can underflow, is 0.
__device__ __forceinline__ void AddZero(float (*values)[kPair][4]) {
#pragma unroll
  for (int g = 0; g < kPair; ++g) {
#pragma unroll
    for (int e = 0; e < 4; ++e) (*values)[g][e] = __fadd_rn((*values)[g][e], 0);
  }
}

// Stores this lane's four elements of both heads of the row's result.
__device__ __forceinline__ void StorePair(const AttendArguments& a, int row, int kv_head, unsigned lane,
                                          const float (&v)[kPair][4]) {
  const int column = kv_head * kPair * kHeadDim + static_cast<int>(lane) * 4;
  if (a.swizzled_rows != 0) {
    // The other half of four columns lies in the other unit of a pair.
    static_assert(gemm::ElementOffset(64, 13, 6) == (gemm::ElementOffset(64, 13, 4) ^ 16));
    const int64_t offset = gemm::ElementOffset(a.swizzled_rows, row, column);
    char* const low = static_cast<char*>(a.y) + offset;
    char* const high = static_cast<char*>(a.y) + (offset ^ 16);
    const int64_t to_next_head = gemm::UnitOffset(a.swizzled_rows, 0, kHeadDim / gemm::kSwizzledColumns, 0);
#pragma unroll
    for (int g = 0; g < kPair; ++g) {
      *reinterpret_cast<uint32_t*>(low + g * to_next_head) = PackBf16(v[g][0], v[g][1]);
      *reinterpret_cast<uint32_t*>(high + g * to_next_head) = PackBf16(v[g][2], v[g][3]);
    }
    return;
  }
  Bf16* const y = static_cast<Bf16*>(a.y) + static_cast<int64_t>(row) * a.y_stride + column;
#pragma unroll
  for (int g = 0; g < kPair; ++g) {
    *reinterpret_cast<uint2*>(y + g * kHeadDim) = {PackBf16(v[g][0], v[g][1]), PackBf16(v[g][2], v[g][3])};
  }
}

}  // namespace qtts::cuda::attention

#endif  // QTTS_CUDA_ATTENTION_HEAD_PAIRS_CUH_
