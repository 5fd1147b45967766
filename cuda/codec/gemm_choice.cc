// SPDX-License-Identifier: LGPL-2.1-or-later
#include "codec/gemm_choice.h"

#include <algorithm>
#include <cmath>

#include "codec/gemm.h"
#include "codec/warpgroup_plan.h"
#include "runtime/device.h"

namespace qtts::cuda::codec {

namespace {

// Estimates the time in us of a product by warpgroups: `products` products of a chunk, counted over all chunks and
// planes, and the epilogue of `args`. `least`: lower limit of a tile's mainloop in us, the time to load the operands of
// all chunks.
double EstimateWarpgroups(const GemmArgs& args, double products, double least, const GemmTile& tile,
                          const DeviceTraits& device, const CodecNumbers& numbers) {
  const int at_once = std::max(1, device.processors / CeilDiv(args.geometry.tiles, tile.tiles));
  const int turns = CeilDiv(CeilDiv(args.geometry.columns, tile.columns), at_once);
  const double size = static_cast<double>(tile.columns * tile.tiles) / (128 * 12);
  const double finish = numbers.warpgroup_tile + (args.epilogue.residual != nullptr ? numbers.warpgroup_residual : 0);
  const double multiply = std::max(least, size * numbers.warpgroup_chunk * products);
  return numbers.warpgroup_kernel + turns * (multiply + size * finish);
}

}  // namespace

cudaError_t PrepareKernels(DeviceTraits* traits) {
  const DeviceDescription* device = nullptr;
  cudaError_t error = DescribeDevice(&device);
  if (error != cudaSuccess) return error;
  traits->processors = device->processors;
  traits->shared_bytes = device->shared_per_block;
  traits->programmatic_launch = device->CanOverlap();
  traits->warpgroups = device->CanRunWarpgroups();
  traits->clusters = false;
  if (device->CanRunClusters()) error = ClusterGemmsFit(*traits, &traits->clusters);
  if (error == cudaSuccess) error = PrepareHalfGemms(*traits);
  if (error == cudaSuccess && traits->clusters) error = PrepareClusterGemms();
  if (error == cudaSuccess && traits->warpgroups) error = PrepareWarpgroupGemms(*traits);
  if (error == cudaSuccess && traits->warpgroups) error = PrepareUnits(*traits);
  if (error == cudaSuccess) error = PrepareOperators();
  if (error == cudaSuccess) error = PrepareF32Gemm();
  return error;
}

cudaError_t LaunchGemm(const GemmArgs& args, Planes x_planes, const GemmTile& tile, const DeviceTraits& device,
                       cudaStream_t stream) {
  if (x_planes == Planes::kF32) return LaunchF32Gemm(args, device, stream);
  if (tile.form == GemmForm::kCluster) return LaunchClusterGemm(args, x_planes, tile, device, stream);
  if (tile.form == GemmForm::kWarpgroup) return LaunchWarpgroupGemm(args, tile, device, stream);
  return LaunchHalfGemm(args, x_planes, tile, device, stream);
}

std::vector<GemmTile> PossibleTiles(const GemmArgs& args, Planes x_planes, const DeviceTraits& device) {
  const GemmGeometry& geometry = args.geometry;
  const bool grouped = geometry.groups > 1 || geometry.segments == 1;
  std::vector<GemmTile> tiles;
  for (const int columns : {8, 16, 32}) {
    const GemmTile cluster = {GemmForm::kCluster, columns, kClusterTiles};
    if (device.clusters && grouped && ClusterTakes(args, x_planes, cluster, device)) tiles.push_back(cluster);
    for (int n = 1; geometry.groups == 1 && n * geometry.segments <= kMaxSegments; ++n) {
      tiles.push_back({GemmForm::kNarrow, columns, n});
    }
  }
  for (const int columns : {32, 64, 128}) {
    const GemmTile wide = {GemmForm::kWide, columns, 6};
    if (WideTakes(args, x_planes, wide, device)) tiles.push_back(wide);
  }
  const std::vector<GemmTile> warpgroups = WarpgroupTiles(args, x_planes, device);
  tiles.insert(tiles.end(), warpgroups.begin(), warpgroups.end());
  return tiles;
}

double EstimateTime(const GemmArgs& args, Planes x_planes, const GemmTile& tile, const DeviceTraits& device,
                    const CodecNumbers& numbers) {
  const GemmGeometry& geometry = args.geometry;
  const double planes_x = x_planes == Planes::kTwoHalves ? 2 : 1;
  const double planes_w = args.weights.planes;
  const double products = planes_x + planes_w - 1;
  const double blocks =
      static_cast<double>(CeilDiv(geometry.columns, tile.columns)) * CeilDiv(geometry.tiles, tile.tiles);
  switch (tile.form) {
    case GemmForm::kCluster: {
      const double turns = std::ceil(blocks * geometry.groups / device.processors);
      return turns * (numbers.cluster_chunk * products * geometry.chunks / geometry.groups + numbers.cluster_block);
    }
    case GemmForm::kWide: {
      const int at_once = tile.columns == 128 ? 1 : 2;
      const double turns = std::ceil(blocks / (device.processors * at_once));
      const double together = std::min<double>(at_once, std::ceil(blocks / device.processors));
      const double multiply = numbers.wide_products * products * tile.columns / 128;
      const double chunk = std::max(numbers.wide_latency + multiply, together * multiply);
      const double column = numbers.wide_column + (args.epilogue.residual != nullptr ? numbers.wide_residual : 0);
      return turns * (geometry.chunks * chunk + column * tile.columns * together + numbers.wide_block);
    }
    case GemmForm::kWarpgroup:
      return EstimateWarpgroups(args, products * geometry.chunks,
                                StreamsColumns(geometry) ? planes_x * geometry.chunks * numbers.warpgroup_stream : 0,
                                tile, device, numbers);
    case GemmForm::kNarrow:
      break;
  }
  const int rows = tile.tiles * kTileRows;
  const int at_once = kMaxSegments / (tile.tiles * geometry.segments);
  const double turns = std::ceil(blocks / (device.processors * at_once));
  const double chunks = static_cast<double>(geometry.chunks) / geometry.segments;
  const double bytes = 2.0 * geometry.chunks * kChannelBlock * (rows * planes_w + tile.columns * planes_x);
  const double multiply =
      chunks * at_once * tile.tiles * geometry.segments * tile.columns / 8 * products * numbers.narrow_products;
  const double load = bytes * at_once / numbers.narrow_bytes;
  return turns * (std::max({multiply, load, chunks * numbers.narrow_latency}) + numbers.narrow_block) +
         std::max(0.0, turns - 1) * numbers.narrow_turn;
}

double EstimateUnitTime(const GemmArgs& first, const GemmArgs& second, const GemmTile& tile, const DeviceTraits& device,
                        const CodecNumbers& numbers) {
  const int products = 2 * first.weights.planes - 1;
  return EstimateWarpgroups(second, products * (first.geometry.chunks + second.geometry.chunks), 0, tile, device,
                            numbers);
}

bool ChooseUnit(const GemmArgs& first, const GemmArgs& second, Planes x_planes, const UnitWeights& weights,
                const DeviceTraits& device, const CodecNumbers& numbers) {
  GemmTile tile;
  if (!UnitTakes(first, second, weights, &tile, device)) return false;
  const auto alone = [&](const GemmArgs& args) {
    return EstimateTime(args, x_planes, ChooseTile(args, x_planes, device, numbers, /*beside=*/false), device, numbers);
  };
  return EstimateUnitTime(first, second, tile, device, numbers) < alone(first) + alone(second);
}

GemmTile ChooseTile(const GemmArgs& args, Planes x_planes, const DeviceTraits& device, const CodecNumbers& numbers,
                    bool beside) {
  const GemmGeometry& geometry = args.geometry;
  if (beside && device.clusters && (geometry.groups > 1 || geometry.segments == 1)) {
    for (const int columns : {32, 16, 8}) {
      if (columns > 8 && geometry.columns <= columns / 2) continue;
      const GemmTile tile = {GemmForm::kCluster, columns, kClusterTiles, true};
      if (ClusterTakes(args, x_planes, tile, device)) return tile;
    }
  }
  GemmTile best;
  double best_time = 0;
  for (const GemmTile& tile : PossibleTiles(args, x_planes, device)) {
    const double time = EstimateTime(args, x_planes, tile, device, numbers);
    if (best_time == 0 || time < best_time) {
      best_time = time;
      best = tile;
    }
  }
  return best;
}

}  // namespace qtts::cuda::codec
