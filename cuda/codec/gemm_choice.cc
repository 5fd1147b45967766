// SPDX-License-Identifier: LGPL-2.1-or-later
#include "codec/gemm_choice.h"

#include <algorithm>

#include "codec/gemm.h"
#include "codec/tile_table.h"
#include "runtime/device.h"

namespace qtts::cuda::codec {

namespace {

// True if the device can run the product so.
bool CanRun(const GemmArgs& args, Planes x_planes, const GemmTile& tile, const DeviceTraits& device) {
  const std::vector<GemmTile> tiles = PossibleTiles(args, x_planes, device);
  return std::any_of(tiles.begin(), tiles.end(), [&](const GemmTile& possible) {
    return possible.form == tile.form && possible.columns == tile.columns && possible.tiles == tile.tiles;
  });
}

// True if kCluster can share out the sum.
bool IsGrouped(const GemmGeometry& geometry) { return geometry.groups > 1 || geometry.segments == 1; }

int BlocksOf(const GemmArgs& args, const GemmTile& tile) {
  return CeilDiv(args.geometry.columns, tile.columns) * CeilDiv(args.geometry.tiles, tile.tiles);
}

int StreamsOf(const GemmArgs& args) { return CeilDiv(args.geometry.columns, args.x.rows); }

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
  std::vector<GemmTile> tiles;
  for (const int columns : {8, 16, 32}) {
    const GemmTile cluster = {GemmForm::kCluster, columns, kClusterTiles};
    if (device.clusters && IsGrouped(geometry) && ClusterTakes(args, x_planes, cluster, device))
      tiles.push_back(cluster);
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

GemmTile RuleTile(const GemmArgs& args, Planes x_planes, const DeviceTraits& device) {
  const GemmGeometry& geometry = args.geometry;
  const int processors = device.processors;
  for (const GemmTile& tile : WarpgroupTiles(args, x_planes, device)) {
    if (2 * BlocksOf(args, tile) >= processors) return tile;
  }
  // Short sums have no mainloop to speak of, and wide blocks take long besides.
  const bool is_short = geometry.groups == 1 && geometry.chunks < 4;
  constexpr GemmTile kWide64 = {GemmForm::kWide, 64, 6};
  const auto wide_takes = [&](const GemmTile& tile) { return WideTakes(args, x_planes, tile, device); };
  if (BlocksOf(args, kWide64) >= (is_short ? 4 : 1) * processors && wide_takes(kWide64)) return kWide64;
  constexpr GemmTile kWide32 = {GemmForm::kWide, 32, 6};
  const int wide_blocks = BlocksOf(args, kWide32);
  if (device.clusters && IsGrouped(geometry) && !is_short && 10 * wide_blocks < 9 * processors) {
    for (const int columns : {32, 16, 8}) {
      const GemmTile tile = {GemmForm::kCluster, columns, kClusterTiles};
      if (2 * geometry.columns > columns && ClusterTakes(args, x_planes, tile, device)) return tile;
    }
  }
  const bool is_wide = geometry.columns > 8 && !is_short && 3 * wide_blocks >= processors;
  // Narrow blocks have one group only.
  if (geometry.groups > 1 || (is_wide && wide_takes(kWide32))) return kWide32;
  const int columns = geometry.columns > 32 ? 32 : geometry.columns > 16 ? 16 : 8;
  return {GemmForm::kNarrow, columns, std::min(geometry.tiles, kMaxSegments / geometry.segments)};
}

bool ChooseUnit(const GemmArgs& first, const GemmArgs& second, Planes x_planes, const UnitWeights& weights,
                const DeviceTraits& device, const CodecNumbers& numbers) {
  GemmTile tile;
  if (!UnitTakes(first, second, weights, &tile, device)) return false;
  if (const ProductTiles* const row = FindTiles(numbers.table, first, x_planes); row != nullptr) {
    return row->unit_streams > 0 && StreamsOf(first) >= row->unit_streams;
  }
  return 2 * BlocksOf(second, tile) >= 3 * device.processors;
}

GemmTile ChooseTile(const GemmArgs& args, Planes x_planes, const DeviceTraits& device, const CodecNumbers& numbers,
                    bool beside) {
  const GemmGeometry& geometry = args.geometry;
  if (beside && device.clusters && IsGrouped(geometry)) {
    for (const int columns : {32, 16, 8}) {
      if (columns > 8 && geometry.columns <= columns / 2) continue;
      const GemmTile tile = {GemmForm::kCluster, columns, kClusterTiles, true};
      if (ClusterTakes(args, x_planes, tile, device)) return tile;
    }
  }
  if (const ProductTiles* const row = FindTiles(numbers.table, args, x_planes); row != nullptr) {
    const GemmTile& tile = row->TileFor(StreamsOf(args));
    if (CanRun(args, x_planes, tile, device)) return tile;
  }
  return RuleTile(args, x_planes, device);
}

}  // namespace qtts::cuda::codec
