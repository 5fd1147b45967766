// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>
#include <cmath>

#include "codec/epilogue.cuh"
#include "codec/gemm.cuh"

// Products in F32 throughout, for checking; and the choice among all products.
namespace qtts::cuda::codec {
namespace {

constexpr int kThreads = 256;
constexpr int kTiles = 4;
constexpr int kRows = kTiles * kTileRows;
constexpr int kColumns = 32;
constexpr int kSumStride = kRows + 4;

// A thread sums 4 outputs of 2 columns.
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
  const int outputs = a.tiles * kTileRows;

  AllowNextKernel();
  WaitForPreviousKernel();
  PlaceColumns(a, first_column, kColumns, places);
  ScaleColumns(a, first_column, kColumns, column_scale);
  PlaceConstants(a, first_tile, kTiles, &constants);
  __syncthreads();

  float total[2][4] = {};
  int chunk = 0;
  for (int segment = 0; segment < a.segments; ++segment) {
    const int end = static_cast<int>(static_cast<int64_t>(a.chunks) * (segment + 1) / a.segments);
    float sum[2][4] = {};
    for (; chunk < end; ++chunk) {
      const int tap = chunk * kChannelBlock / a.x.channels;
      const int channel = chunk * kChannelBlock - tap * a.x.channels;
      __syncthreads();
      for (int i = thread; i < kChannelBlock * kRows; i += kThreads) {
        const int output = first_tile * kTileRows + i % kRows;
        const int64_t k = static_cast<int64_t>(chunk) * kChannelBlock + i / kRows;
        w[i / kRows][i % kRows] =
            output < outputs ? __ldg(static_cast<const float*>(a.weights) + k * outputs + output) : 0.0F;
      }
      for (int i = thread; i < kChannelBlock * kColumns; i += kThreads) {
        const Column c = places[i / kChannelBlock];
        const float* const row =
            c.frame < 0 ? nullptr
                        : SourceRow<float>(a.x, c.batch_row, c.time, (a.taps - 1 - tap) * a.dilation, c.state, c.frame);
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

int CeilDiv(int a, int b) { return (a + b - 1) / b; }

}  // namespace

cudaError_t LaunchF32Gemm(GemmArgs args, const DeviceTraits& device, cudaStream_t stream) {
  SetBlockTiles(&args, kTiles);
  const dim3 grid(static_cast<unsigned>(CeilDiv(args.columns, kColumns)),
                  static_cast<unsigned>(CeilDiv(args.tiles, kTiles)));
  return LaunchChained(F32Gemm, grid, kThreads, 0, args, device, stream);
}

cudaError_t PrepareKernels(int device, DeviceTraits* traits) {
  int major = 0;
  cudaError_t error = cudaDeviceGetAttribute(&traits->processors, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  traits->programmatic_launch = traits->clusters = major >= 9;
  if (error == cudaSuccess) error = PrepareHalfGemms();
  if (error == cudaSuccess && traits->clusters) error = PrepareClusterGemms();
  if (error == cudaSuccess) error = PrepareOperators();
  if (error == cudaSuccess) error = PrepareKernel(F32Gemm, 0);
  return error;
}

cudaError_t LaunchGemm(const GemmArgs& args, Planes x_planes, const GemmTile& tile, const DeviceTraits& device,
                       cudaStream_t stream) {
  if (x_planes == Planes::kF32) return LaunchF32Gemm(args, device, stream);
  if (tile.form == GemmForm::kCluster) return LaunchClusterGemm(args, x_planes, tile, device, stream);
  return LaunchHalfGemm(args, x_planes, tile, device, stream);
}

GemmCut ChooseCut(const GemmArgs& args, bool grouped, const DeviceTraits& device) {
  constexpr int kLeastSegmentChunks = 2;
  if (!grouped || !device.clusters) return {1, std::clamp(args.chunks / kLeastSegmentChunks, 1, kMaxSegments)};
  // A group for each block of a cluster: as many as bring the blocks of one frame to some two a processor, or as it
  // takes for their part of the input to be small.
  constexpr int kLeastGroupChunks = 3;
  constexpr int kBlocks = 264;
  constexpr int kStagedRows = 400;  // of a channel block
  const int columns = args.columns > 8 ? 32 : 8;
  const int rows = columns > 8 ? columns + (args.taps - 1) * args.dilation : args.taps * columns;
  const int blocks = CeilDiv(args.columns, columns) * CeilDiv(args.tiles, kClusterTiles);
  const int channel_blocks = args.x.channels / kChannelBlock;
  int groups = 1;
  while (groups < kMostClusterBlocks && channel_blocks % (2 * groups) == 0 &&
         args.chunks >= 2 * groups * kLeastGroupChunks &&
         (2 * groups * blocks <= kBlocks || channel_blocks / groups * rows > kStagedRows)) {
    groups *= 2;
  }
  return {groups, groups};
}

GemmTile ChooseTile(const GemmArgs& args, Planes x_planes, const DeviceTraits& device, bool beside) {
  const bool grouped = args.groups > 1 || args.segments == 1;
  if (beside && device.clusters && grouped) {
    for (const int columns : {32, 16, 8}) {
      if (columns > 8 && args.columns <= columns / 2) continue;
      const GemmTile tile = {GemmForm::kCluster, columns, kClusterTiles, true};
      if (ClusterTakes(args, x_planes, tile, device)) return tile;
    }
  }
  // Rough microseconds: what a block loads and multiplies, in as many turns as it takes, or the latency of its chain
  // of chunks where that is more.
  const double planes_x = x_planes == Planes::kTwoHalves ? 2 : 1;
  const double planes_w = args.weight_planes;
  const double products = planes_x + planes_w - 1;
  GemmTile best;
  double best_cost = 0;
  const auto consider = [&](const GemmTile& tile) {
    const int rows = tile.tiles * kTileRows;
    const double blocks = static_cast<double>(CeilDiv(args.columns, tile.columns)) * CeilDiv(args.tiles, tile.tiles);
    double cost = 0;
    if (tile.form == GemmForm::kCluster) {
      const double turns = std::ceil(blocks * args.groups / device.processors);
      cost = turns * (0.09 * products * args.chunks / args.groups + 1.5);
    } else if (tile.form == GemmForm::kWide) {
      const int at_once = tile.columns == 128 ? 1 : 2;
      const double turns = std::ceil(blocks / (device.processors * at_once));
      const double together = std::min<double>(at_once, std::ceil(blocks / device.processors));
      const double multiply = 0.27 * products * tile.columns / 128;
      const double chunk = std::max(0.3 + multiply, together * multiply);
      cost = turns * (args.chunks * chunk + 0.03 * tile.columns * together + 1.5);
    } else {
      const int at_once = kMaxSegments / (tile.tiles * args.segments);
      const double turns = std::ceil(blocks / (device.processors * at_once));
      const double chunks = static_cast<double>(args.chunks) / args.segments;
      const double bytes = 2.0 * args.chunks * kChannelBlock * (rows * planes_w + tile.columns * planes_x);
      const double multiply = chunks * at_once * tile.tiles * args.segments * tile.columns / 8 * products * 0.003;
      const double load = bytes * at_once / 50e3;
      cost = turns * (std::max({multiply, load, chunks * 0.1}) + 1.0);
    }
    if (best_cost == 0 || cost < best_cost) {
      best_cost = cost;
      best = tile;
    }
  };
  for (const int columns : {8, 16, 32}) {
    const GemmTile cluster = {GemmForm::kCluster, columns, kClusterTiles};
    if (device.clusters && grouped && ClusterTakes(args, x_planes, cluster, device)) consider(cluster);
    for (int tiles = 1; args.groups == 1 && tiles * args.segments <= kMaxSegments; ++tiles) {
      consider({GemmForm::kNarrow, columns, tiles});
    }
  }
  for (const int columns : {32, 64, 128}) consider({GemmForm::kWide, columns, 6});
  return best;
}

}  // namespace qtts::cuda::codec
