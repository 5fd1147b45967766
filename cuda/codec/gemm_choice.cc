// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>
#include <cmath>

#include "codec/gemm.h"
#include "codec/kernels.h"

// The choice among all products: how the sums of one are cut, which is its own for good, and which kernel takes it in a
// call, which decides on time alone.
namespace qtts::cuda::codec {

cudaError_t PrepareKernels(int device, DeviceTraits* traits) {
  int major = 0;
  cudaError_t error = cudaDeviceGetAttribute(&traits->processors, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  traits->programmatic_launch = major >= 9;
  traits->clusters = major >= 9 && HasClusterGemms();
  if (error == cudaSuccess) error = PrepareHalfGemms();
  if (error == cudaSuccess && traits->clusters) error = PrepareClusterGemms();
  if (error == cudaSuccess) error = PrepareOperators();
  if (error == cudaSuccess) error = PrepareF32Gemm();
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
  if (!grouped || !device.clusters) return {1, std::clamp(args.geometry.chunks / kLeastSegmentChunks, 1, kMaxSegments)};
  // A group for each block of a cluster: as many as bring the blocks of one frame to some two a processor, or as it
  // takes for their part of the input to be small.
  constexpr int kLeastGroupChunks = 3;
  constexpr int kBlocks = 264;
  constexpr int kStagedRows = 400;  // of a channel block
  const int columns = args.geometry.columns > 8 ? 32 : 8;
  const int rows =
      columns > 8 ? columns + (args.geometry.taps - 1) * args.geometry.dilation : args.geometry.taps * columns;
  const int blocks = CeilDiv(args.geometry.columns, columns) * CeilDiv(args.geometry.tiles, kClusterTiles);
  const int channel_blocks = args.x.channels / kChannelBlock;
  int groups = 1;
  while (groups < kMostClusterBlocks && channel_blocks % (2 * groups) == 0 &&
         args.geometry.chunks >= 2 * groups * kLeastGroupChunks &&
         (2 * groups * blocks <= kBlocks || channel_blocks / groups * rows > kStagedRows)) {
    groups *= 2;
  }
  return {groups, groups};
}

GemmTile ChooseTile(const GemmArgs& args, Planes x_planes, const DeviceTraits& device, bool beside) {
  const bool grouped = args.geometry.groups > 1 || args.geometry.segments == 1;
  if (beside && device.clusters && grouped) {
    for (const int columns : {32, 16, 8}) {
      if (columns > 8 && args.geometry.columns <= columns / 2) continue;
      const GemmTile tile = {GemmForm::kCluster, columns, kClusterTiles, true};
      if (ClusterTakes(args, x_planes, tile, device)) return tile;
    }
  }
  // Rough microseconds: what a block loads and multiplies, in as many turns as it takes, or the latency of its chain
  // of chunks where that is more.
  const double planes_x = x_planes == Planes::kTwoHalves ? 2 : 1;
  const double planes_w = args.weights.planes;
  const double products = planes_x + planes_w - 1;
  GemmTile best;
  double best_cost = 0;
  const auto consider = [&](const GemmTile& tile) {
    const int rows = tile.tiles * kTileRows;
    const double blocks =
        static_cast<double>(CeilDiv(args.geometry.columns, tile.columns)) * CeilDiv(args.geometry.tiles, tile.tiles);
    double cost = 0;
    if (tile.form == GemmForm::kCluster) {
      const double turns = std::ceil(blocks * args.geometry.groups / device.processors);
      cost = turns * (0.09 * products * args.geometry.chunks / args.geometry.groups + 1.5);
    } else if (tile.form == GemmForm::kWide) {
      const int at_once = tile.columns == 128 ? 1 : 2;
      const double turns = std::ceil(blocks / (device.processors * at_once));
      const double together = std::min<double>(at_once, std::ceil(blocks / device.processors));
      const double multiply = 0.27 * products * tile.columns / 128;
      const double chunk = std::max(0.3 + multiply, together * multiply);
      cost = turns * (args.geometry.chunks * chunk + 0.03 * tile.columns * together + 1.5);
    } else {
      const int at_once = kMaxSegments / (tile.tiles * args.geometry.segments);
      const double turns = std::ceil(blocks / (device.processors * at_once));
      const double chunks = static_cast<double>(args.geometry.chunks) / args.geometry.segments;
      const double bytes = 2.0 * args.geometry.chunks * kChannelBlock * (rows * planes_w + tile.columns * planes_x);
      const double multiply =
          chunks * at_once * tile.tiles * args.geometry.segments * tile.columns / 8 * products * 0.003;
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
    for (int tiles = 1; args.geometry.groups == 1 && tiles * args.geometry.segments <= kMaxSegments; ++tiles) {
      consider({GemmForm::kNarrow, columns, tiles});
    }
  }
  for (const int columns : {32, 64, 128}) consider({GemmForm::kWide, columns, 6});
  return best;
}

}  // namespace qtts::cuda::codec
