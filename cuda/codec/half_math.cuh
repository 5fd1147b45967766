// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CODEC_HALF_MATH_CUH_
#define QTTS_CUDA_CODEC_HALF_MATH_CUH_

#include "codec/device.cuh"

// Common code of the tensor core products: F16 operands, F32 sums. If x and W have two planes (= high + low), the
// products high*low are added too; low*low is below F32's own rounding.
//
// All kernels form every output in the same order: per segment of the chunks, chunk by chunk, the terms of a step
// smallest first, then the segments in order. They therefore agree bit for bit, and a column's result does not depend
// on its place in a batch.
namespace qtts::cuda::codec {

__device__ __forceinline__ void Mma(float (&d)[4], const uint4& a, uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

// Multiplies one k-step of a chunk, for some weight tiles and groups of 8 columns. w[tile][plane]; x[group][plane].
// Sums in turn: a product waits for the last one of its own sum.
template <int kTiles, int kGroups, int kPlanes>
__device__ __forceinline__ void MultiplyStep(float (&d)[kTiles][kGroups][4], const uint4 (&w)[kTiles][kPlanes],
                                             const uint4 (&x)[kGroups][kPlanes], int step) {
  const auto all = [&](int w_plane, int x_plane) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int j = 0; j < kGroups; ++j) {
        const uint4& v = x[j][x_plane];
        Mma(d[t][j], w[t][w_plane], step != 0 ? v.z : v.x, step != 0 ? v.w : v.y);
      }
    }
  };
  if constexpr (kPlanes == 2) {
    all(1, 0);
    all(0, 1);
  }
  all(0, 0);
}

__device__ __forceinline__ int SegmentBegin(const GemmArgs& a, int segment) {
  return Divide(a.geometry.chunks * segment, a.geometry.by_segments);
}

}  // namespace qtts::cuda::codec

#endif  // QTTS_CUDA_CODEC_HALF_MATH_CUH_
