// SPDX-License-Identifier: LGPL-2.1-or-later
#include "codec/epilogue.cuh"
#include "codec/gemm.h"

// Products in F32 throughout, for checking.
namespace qtts::cuda::codec {
namespace {

constexpr int kThreads = 256;
constexpr int kTiles = 4;
constexpr int kRows = kTiles * kTileRows;
constexpr int kColumns = 32;
constexpr int kSumStride = kRows + 4;

// Multiplies; a thread sums 4 outputs of 2 columns.
__global__ void __launch_bounds__(kThreads) F32Gemm(const __grid_constant__ GemmArgs a) {
  __shared__ __align__(16) float w[kChannelBlock][kRows];
  __shared__ float x[kColumns][kChannelBlock + 1];
  __shared__ __align__(16) float sums[kColumns * kSumStride];
  __shared__ Column places[kColumns];
  __shared__ float column_scale[kColumns];
  __shared__ __align__(16) Constants<kRows> constants;
  const int first_tile = static_cast<int>(blockIdx.y) * kTiles;
  const int first_column = static_cast<int>(blockIdx.x) * kColumns;
  const int thread = static_cast<int>(threadIdx.x);
  const int m = thread % (kRows / 4) * 4;
  const int n = thread / (kRows / 4) * 2;
  const int outputs = a.geometry.tiles * kTileRows;

  LetNextStart();
  WaitForPrevious();
  PlaceColumns(a, first_column, kColumns, places);
  ScaleColumns(a, first_column, kColumns, column_scale);
  PlaceConstants(a, first_tile, kTiles, &constants);
  __syncthreads();

  float total[2][4] = {};
  int chunk = 0;
  for (int segment = 0; segment < a.geometry.segments; ++segment) {
    const int end = static_cast<int>(static_cast<int64_t>(a.geometry.chunks) * (segment + 1) / a.geometry.segments);
    float sum[2][4] = {};
    for (; chunk < end; ++chunk) {
      const int tap = chunk * kChannelBlock / a.x.channels;
      const int channel = chunk * kChannelBlock - tap * a.x.channels;
      __syncthreads();
      for (int i = thread; i < kChannelBlock * kRows; i += kThreads) {
        const int output = first_tile * kTileRows + i % kRows;
        const int64_t k = static_cast<int64_t>(chunk) * kChannelBlock + i / kRows;
        w[i / kRows][i % kRows] =
            output < outputs ? __ldg(static_cast<const float*>(a.weights.data) + k * outputs + output) : 0.0F;
      }
      for (int i = thread; i < kChannelBlock * kColumns; i += kThreads) {
        const Column c = places[i / kChannelBlock];
        const float* const row =
            c.frame < 0 ? nullptr
                        : SourceRow<float>(a.x, c.batch_row, c.time, (a.geometry.taps - 1 - tap) * a.geometry.dilation,
                                           c.state, c.frame);
        x[i / kChannelBlock][i % kChannelBlock] = row == nullptr ? 0.0F : __ldcg(row + channel + i % kChannelBlock);
      }
      __syncthreads();
      for (int k = 0; k < kChannelBlock; ++k) {
        const float4 v = *reinterpret_cast<const float4*>(&w[k][m]);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const float u = x[n + j][k];
          sum[j][0] = fmaf(v.x, u, sum[j][0]);
          sum[j][1] = fmaf(v.y, u, sum[j][1]);
          sum[j][2] = fmaf(v.z, u, sum[j][2]);
          sum[j][3] = fmaf(v.w, u, sum[j][3]);
        }
      }
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) total[j][i] += sum[j][i];
    }
  }
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    *reinterpret_cast<float4*>(sums + (n + j) * kSumStride + m) = {total[j][0], total[j][1], total[j][2], total[j][3]};
  }
  __syncthreads();
  const float4 residual = FirstResidual(a, first_tile, first_column);
  Finish(a, first_tile, first_column, kColumns, places, column_scale, constants, residual,
         [&](int t, int column, int r) {
           return *reinterpret_cast<const float4*>(sums + column * kSumStride + t * kTileRows + r);
         });
}

}  // namespace

cudaError_t PrepareF32Gemm() { return PrepareKernel(F32Gemm, 0); }

cudaError_t LaunchF32Gemm(GemmArgs args, const DeviceTraits& device, cudaStream_t stream) {
  SetBlockTiles(&args, kTiles);
  const dim3 grid(static_cast<unsigned>(CeilDiv(args.geometry.columns, kColumns)),
                  static_cast<unsigned>(CeilDiv(args.geometry.tiles, kTiles)));
  return LaunchChained(F32Gemm, grid, kThreads, 0, args, device, stream);
}

}  // namespace qtts::cuda::codec
