// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CODEC_NARROW_PARTS_CUH_
#define QTTS_CUDA_CODEC_NARROW_PARTS_CUH_

#include <cstddef>
#include <cstdint>

#include "codec/epilogue.cuh"
#include "codec/half_math.cuh"
#include "runtime/fragment.h"

// Parts of the kernels whose warps share a sum of few columns, a segment each, and load operands straight into
// registers.
namespace qtts::cuda::codec {

constexpr int kSumStride = 20;  // floats of a column of 16 sums: spreads the lanes over all banks

constexpr size_t RowBytes(int taps, int columns) { return static_cast<size_t>(taps) * columns * sizeof(uintptr_t); }

// Stores a warp's sums of 16 weight rows and kColumnTiles * 8 columns to `to`, [column][stride].
template <int kColumnTiles>
__device__ __forceinline__ void StoreSums(const float (&sum)[kColumnTiles][4], int lane, int stride, float* to) {
#pragma unroll
  for (int j = 0; j < kColumnTiles; ++j) {
    float* const at =
        to + (j * SumFragment::kColumns + SumFragment::Column(lane, 0)) * stride + SumFragment::Row(lane, 0);
    at[0] = sum[j][0];
    at[stride] = sum[j][1];
    at[8] = sum[j][2];
    at[stride + 8] = sum[j][3];
  }
}

// A warp's weights of one tile's segment after the other, kDepth chunks of them in registers.
template <int kPlanes, int kDepth>
class NarrowWeights {
 public:
  __device__ __forceinline__ NarrowWeights(const GemmArgs& arguments, int warp_tile, int lane)
      : a(arguments), warp_tile_(warp_tile), lane_(lane) {}

  // Returns this lane's part of the weights of a group's tile; a plane of a chunk is 64 apart, its second step 32. A
  // tile beyond the last repeats it; nothing of it is stored.
  __device__ __forceinline__ const uint4* Of(int group) const {
    const int tile = min(group + warp_tile_, a.geometry.tiles - 1);
    return static_cast<const uint4*>(a.weights.data) + static_cast<int64_t>(tile) * a.geometry.chunks * (64 * kPlanes) +
           lane_;
  }
  __device__ __forceinline__ void Load(int d, const uint4* weights, int chunk) {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
#pragma unroll
      for (int p = 0; p < kPlanes; ++p) w[d][step][0][p] = __ldg(weights + (chunk * kPlanes + p) * 64 + step * 32);
    }
  }

  uint4 w[kDepth][2][1][kPlanes];  // [step]

 private:
  const GemmArgs& a;
  const int warp_tile_, lane_;
};

// A warp's columns of a segment, kDepth chunks of them in registers.
template <int kColumnTiles, int kPlanes, int kDepth>
class NarrowColumns {
 public:
  __device__ __forceinline__ NarrowColumns(const GemmArgs& arguments, const uintptr_t* rows, int segment, int begin,
                                           int lane)
      : a(arguments),
        rows_(rows),
        first_block_(a.geometry.groups > 1 ? segment * a.geometry.by_group_blocks.value : 0),
        begin_(begin),
        lane_(lane) {
    GoToBegin();
  }

  __device__ __forceinline__ void GoToBegin() {
    const int in_group = begin_ - first_block_ * a.geometry.taps;
    next_tap_ = Divide(in_group, a.geometry.by_group_blocks);
    next_block_ = first_block_ + in_group - next_tap_ * a.geometry.by_group_blocks.value;
  }
  // Loads the next chunk: of each eight columns the lane's row of the chunk's tap.
  __device__ __forceinline__ void Load(int d) {
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j) {
      const uintptr_t row = rows_[next_tap_ * (kColumnTiles * 8) + j * 8 + UnitFragment::Row(lane_)];
      const __half* from = reinterpret_cast<const __half*>(row & ~uintptr_t{1}) + next_block_ * kChannelBlock +
                           UnitFragment::Column(lane_);
#pragma unroll
      for (int p = 0; p < kPlanes; ++p) {
        x[d][j][p] = {0, 0, 0, 0};
        if (row != 0) x[d][j][p] = __ldcg(reinterpret_cast<const uint4*>(from));
        from += (row & 1) != 0 ? a.x.history_plane : a.x.plane;
      }
    }
    if (++next_block_ == first_block_ + a.geometry.by_group_blocks.value) {
      next_block_ = first_block_;
      ++next_tap_;
    }
  }

  uint4 x[kDepth][kColumnTiles][kPlanes];

 private:
  const GemmArgs& a;
  const uintptr_t* const rows_;
  const int first_block_;  // of the segment's group
  const int begin_, lane_;
  int next_tap_, next_block_;
};

}  // namespace qtts::cuda::codec

#endif  // QTTS_CUDA_CODEC_NARROW_PARTS_CUH_
