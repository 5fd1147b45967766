// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gemm/f32.h"
#include "gemm/gemm_device.cuh"

namespace qtts::cuda::gemm {
namespace {

// One tile of outputs: a warp computes the outputs warp and warp + 8 of the tile for 8 rows.
template <GemmKind kKind>
__global__ void __launch_bounds__(kThreads) F32Kernel(GemmArguments a) {
  constexpr int kOutputs = TileOutputs(kKind);
  constexpr int kHalves = kOutputs / 8;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kTileRows;
  const int rows = static_cast<int>(min(static_cast<int64_t>(kTileRows), a.rows - first_row));
  const int width = a.chunks * kChunk;
  const float* const weights =
      static_cast<const float*>(a.weights) + (static_cast<int64_t>(blockIdx.x) * kOutputs + warp) * width;
  const bool live = a.live == nullptr || LoadL2(a.live) != 0;

  WaitForPrevious();
  LetNextStart();
  if (!live) return;

  float sums[kHalves][kTileRows] = {};
  float squares[kTileRows] = {};
  for (int k = lane * 4; k < width; k += 128) {
    float4 w[kHalves];
#pragma unroll
    for (int h = 0; h < kHalves; ++h) w[h] = *reinterpret_cast<const float4*>(weights + h * 8 * width + k);
    float4 scale = {1, 1, 1, 1};
    if (HasNorm(kKind)) scale = *reinterpret_cast<const float4*>(a.norm + k);
#pragma unroll
    for (int r = 0; r < kTileRows; ++r) {
      if (r >= rows) continue;
      const float4 x =
          __ldcg(reinterpret_cast<const float4*>(static_cast<const float*>(a.x) + (first_row + r) * a.x_stride + k));
      if (HasNorm(kKind)) squares[r] += x.x * x.x + x.y * x.y + (x.z * x.z + x.w * x.w);
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        sums[h][r] +=
            w[h].x * (x.x * scale.x) + w[h].y * (x.y * scale.y) + (w[h].z * (x.z * scale.z) + w[h].w * (x.w * scale.w));
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kTileRows; ++r) {
    if (r >= rows) continue;
    float factor = 1;
    if (HasNorm(kKind)) factor = 1.0F / sqrtf(WarpSum(squares[r]) / static_cast<float>(a.columns) + a.eps);
    float totals[kHalves];
#pragma unroll
    for (int h = 0; h < kHalves; ++h) totals[h] = WarpSum(sums[h][r]) * factor;
    if (lane != 0) continue;
    const int64_t row = first_row + r;
    if constexpr (kKind == GemmKind::kNormGated) {
      const int output = blockIdx.x * 8 + warp;
      if (output < a.outputs) {
        static_cast<float*>(a.y)[row * a.y_stride + output] = Silu<float>(totals[0]) * totals[kHalves - 1];
      }
    } else {
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        const int output = blockIdx.x * kOutputs + h * 8 + warp;
        float previous = 0;
        if (kKind == GemmKind::kAdd && output < a.outputs) {
          previous = LoadL2(static_cast<const float*>(a.y) + row * a.y_stride + output);
        }
        Finish<kKind, float>(a, row, output, totals[h], previous);
      }
    }
  }
}

template <GemmKind kKind>
void Run(const Launcher& launch, int tiles, const GemmArguments& a) {
  launch(F32Kernel<kKind>, dim3(static_cast<unsigned>(tiles), static_cast<unsigned>((a.rows + 7) / 8)), kThreads, 0, a);
}

}  // namespace

void RunF32(const Launcher& launch, GemmKind kind, int tiles, const GemmArguments& a) {
  switch (kind) {
    case GemmKind::kNormStore:
      return Run<GemmKind::kNormStore>(launch, tiles, a);
    case GemmKind::kNormGated:
      return Run<GemmKind::kNormGated>(launch, tiles, a);
    case GemmKind::kAdd:
      return Run<GemmKind::kAdd>(launch, tiles, a);
    case GemmKind::kStore:
      return Run<GemmKind::kStore>(launch, tiles, a);
    case GemmKind::kStoreSilu:
      return Run<GemmKind::kStoreSilu>(launch, tiles, a);
  }
}

}  // namespace qtts::cuda::gemm
