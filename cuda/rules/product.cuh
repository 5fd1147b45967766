// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RULES_PRODUCT_CUH_
#define QTTS_CUDA_RULES_PRODUCT_CUH_

#include <cstdint>

#include "rules/chunk.h"
#include "runtime/device_math.cuh"

// The order of a product's additions in BF16: the columns are cut into eight shares of whole chunks, one for each warp
// of a block or block of a cluster. A share is summed chunk by chunk by the matrix instruction, from column 0 of the
// share on; the eight sums are added in order, then multiplied by the norm's factor, then the bias is added.
//
// Additions are spelled out with intrinsics wherever a compiler could contract them in one kernel and not in another.
namespace qtts::cuda {

inline constexpr int kShares = 8;

// Returns the chunks of a share; the last shares may have fewer.
constexpr int ChunksOfShare(int chunks) { return (chunks + kShares - 1) / kShares; }

// The chunks [begin, begin + count) of one share.
struct ColumnShare {
  int begin, count;
};
__device__ __forceinline__ ColumnShare ShareOfChunks(int chunks, int share) {
  const int per_share = ChunksOfShare(chunks);
  const int begin = share * per_share;
  return {begin, max(0, min(chunks - begin, per_share))};
}

// Multiplies k-step kStep of a chunk's two (UnitFragment in runtime/fragment.h): 16 weight rows, in `low` those from 0
// to 7, in `high` those from 8 on, with the 8 rows of `x`.
template <int kStep>
__device__ __forceinline__ void MultiplyStep(float (&sums)[4], const uint4& low, const uint4& high, const uint4& x) {
  if constexpr (kStep == 0) {
    Mma(sums, low.x, high.x, low.y, high.y, x.x, x.y);
  } else {
    Mma(sums, low.z, high.z, low.w, high.w, x.z, x.w);
  }
}
// Multiplies a chunk.
__device__ __forceinline__ void MultiplyChunk(float (&sums)[4], const uint4& low, const uint4& high, const uint4& x) {
  MultiplyStep<0>(sums, low, high, x);
  MultiplyStep<1>(sums, low, high, x);
}

// Returns one output from the sums of its shares, which lie `stride` apart.
__device__ __forceinline__ float SumOfShares(const float* partial, int stride, float factor) {
  float sum = 0;
#pragma unroll
  for (int s = 0; s < kShares; ++s) sum = __fadd_rn(sum, partial[s * stride]);
  return __fmul_rn(sum, factor);
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RULES_PRODUCT_CUH_
