// SPDX-License-Identifier: LGPL-2.1-or-later
#include "codec/gemm_choice.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "codec/gemm.h"
#include "codec/staged_plan.h"
#include "codec/tile_table.h"
#include "runtime/device.h"

namespace qtts::cuda::codec {
namespace {

// Returns true if kCluster can share out the sum.
bool IsGrouped(const GemmGeometry& geometry) { return geometry.groups > 1 || geometry.segments == 1; }

// Returns true if kNarrow can give each segment to a warp. Where groups are made for clusters, there are too few of
// them.
bool NarrowTakes(const GemmGeometry& geometry, const GemmTile& tile, const DeviceTraits& device) {
  return (geometry.groups == 1 || !device.clusters) && tile.tiles * geometry.segments <= kMaxSegments;
}

// Calls `see` for each kernel that any product could have, in the order in which equals are preferred.
template <typename See>
void ForEachTile(const See& see) {
  for (const int columns : {8, 16, 32}) {
    see(GemmTile{GemmForm::kCluster, columns, kClusterTiles});
    for (int tiles = 1; tiles <= kMaxSegments; ++tiles) see(GemmTile{GemmForm::kNarrow, columns, tiles});
  }
  for (const int columns : {32, 64, 128}) see(GemmTile{GemmForm::kWide, columns, kWideTiles});
  for (const GemmTile& tile : kWarpgroupTiles) see(tile);
  for (const GemmTile& tile : kStagedTiles) see(tile);
}

int BlocksOf(const GemmArgs& args, const GemmTile& tile) {
  return CeilDiv(args.geometry.columns, tile.columns) * CeilDiv(args.geometry.tiles, tile.tiles);
}

int StreamsOf(const GemmArgs& args) { return CeilDiv(args.geometry.columns, args.x.rows); }

// Returns true if the device can run the product so.
bool CanRun(const GemmArgs& args, Planes x_planes, const GemmTile& tile, const DeviceTraits& device) {
  switch (tile.form) {
    case GemmForm::kNarrow:
      return NarrowTakes(args.geometry, tile, device);
    case GemmForm::kCluster:
      return device.clusters && IsGrouped(args.geometry) && ClusterTakes(args, x_planes, tile, device);
    case GemmForm::kWide:
      return WideTakes(args, x_planes, tile, device);
    case GemmForm::kWarpgroup:
      return WarpgroupTakes(args, x_planes, tile, device);
    case GemmForm::kStaged:
      return StagedTakes(args, x_planes, tile, device);
  }
  return false;
}

// Returns the whole tiles for a product; `form` is kNarrow if there are none, or not enough to occupy nine tenths of
// the SMs. Plain products: warps of 48 by 48 load the fewest bytes for a matrix instruction, two blocks of them on an
// SM need some 80 KiB each, and one larger block is the next best.
GemmTile StagedTileFor(const GemmArgs& args, Planes x_planes, const DeviceTraits& device) {
  const auto tile = [](int columns, int tiles) { return GemmTile{GemmForm::kStaged, columns, tiles}; };
  const GemmTile plain[] = {tile(96, 6), tile(128, 3), tile(192, 6), tile(128, 6), tile(128, 3)};
  const GemmTile general[] = {tile(128, 8), tile(128, 4)};
  const bool is_plain = IsPlain(args.epilogue);
  for (const GemmTile& candidate : is_plain ? std::span<const GemmTile>(plain) : std::span<const GemmTile>(general)) {
    // Small tiles whose taps can't share columns come last.
    if (is_plain && candidate.tiles == 3 && &candidate != std::end(plain) - 1 && args.geometry.taps > 1 &&
        !StagedShares(args, candidate, device)) {
      continue;
    }
    if (10 * BlocksOf(args, candidate) >= 9 * device.processors && StagedTakes(args, x_planes, candidate, device)) {
      return candidate;
    }
  }
  return {};
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
  if (error == cudaSuccess) error = PrepareLinearGemms();
  if (error == cudaSuccess && traits->clusters) error = PrepareClusterGemms();
  if (error == cudaSuccess && traits->warpgroups) error = PrepareWarpgroupGemms(*traits);
  if (error == cudaSuccess && traits->warpgroups) error = PrepareWarpgroupUnits(*traits);
  if (error == cudaSuccess && !traits->warpgroups) error = PrepareStagedGemms(*traits);
  if (error == cudaSuccess && !traits->warpgroups) error = PrepareStagedUnits(*traits);
  if (error == cudaSuccess) error = PrepareOperators();
  if (error == cudaSuccess) error = PrepareF32Gemm();
  return error;
}

cudaError_t LaunchGemm(const GemmArgs& args, Planes x_planes, const GemmTile& tile, const DeviceTraits& device,
                       cudaStream_t stream) {
  if (x_planes == Planes::kF32) return LaunchF32Gemm(args, device, stream);
  switch (tile.form) {
    case GemmForm::kCluster:
      return LaunchClusterGemm(args, x_planes, tile, device, stream);
    case GemmForm::kWarpgroup:
      return LaunchWarpgroupGemm(args, tile, device, stream);
    case GemmForm::kStaged:
      return LaunchStagedGemm(args, tile, device, stream);
    case GemmForm::kNarrow:
      // Elsewhere kernels overlap, and the long beginning of narrow blocks is hidden.
      if (!device.programmatic_launch && LinearTakes(args, x_planes)) {
        return LaunchLinearGemm(args, x_planes, device, stream);
      }
      break;
    case GemmForm::kWide:
      break;
  }
  return LaunchHalfGemm(args, x_planes, tile, device, stream);
}

bool UnitTakes(const GemmArgs& first, const GemmArgs& second, const UnitWeights& weights, GemmTile* tile,
               const DeviceTraits& device) {
  return (device.warpgroups ? WarpgroupUnitTakes : StagedUnitTakes)(first, second, weights, tile, device);
}

cudaError_t LaunchUnit(const GemmArgs& first, const GemmArgs& second, const UnitWeights& weights,
                       const DeviceTraits& device, cudaStream_t stream) {
  return (device.warpgroups ? LaunchWarpgroupUnit : LaunchStagedUnit)(first, second, weights, device, stream);
}

std::vector<GemmTile> PossibleTiles(const GemmArgs& args, Planes x_planes, const DeviceTraits& device) {
  std::vector<GemmTile> tiles;
  ForEachTile([&](const GemmTile& tile) {
    if (CanRun(args, x_planes, tile, device)) tiles.push_back(tile);
  });
  return tiles;
}

GemmTile RuleTile(const GemmArgs& args, Planes x_planes, const DeviceTraits& device) {
  const GemmGeometry& geometry = args.geometry;
  const int processors = device.processors;
  for (const GemmTile& tile : kWarpgroupTiles) {
    if (2 * BlocksOf(args, tile) >= processors && WarpgroupTakes(args, x_planes, tile, device)) return tile;
  }
  if (const GemmTile tile = StagedTileFor(args, x_planes, device); tile.form == GemmForm::kStaged) return tile;
  // Short sums have no mainloop to speak of, and wide blocks take long besides.
  const bool is_short = geometry.groups == 1 && geometry.chunks < 4;
  constexpr GemmTile kWide64 = {GemmForm::kWide, 64, kWideTiles};
  const auto wide_takes = [&](const GemmTile& tile) { return WideTakes(args, x_planes, tile, device); };
  if (BlocksOf(args, kWide64) >= (is_short ? 4 : 1) * processors && wide_takes(kWide64)) return kWide64;
  constexpr GemmTile kWide32 = {GemmForm::kWide, 32, kWideTiles};
  const int wide_blocks = BlocksOf(args, kWide32);
  if (device.clusters && IsGrouped(geometry) && !is_short && 10 * wide_blocks < 9 * processors) {
    for (const int columns : {32, 16, 8}) {
      const GemmTile tile = {GemmForm::kCluster, columns, kClusterTiles};
      if (2 * geometry.columns > columns && ClusterTakes(args, x_planes, tile, device)) return tile;
    }
  }
  const bool is_wide = geometry.columns > 8 && !is_short && 3 * wide_blocks >= processors;
  const int columns = geometry.columns > 32 ? 32 : geometry.columns > 16 ? 16 : 8;
  const GemmTile narrow = {GemmForm::kNarrow, columns, std::min(geometry.tiles, kMaxSegments / geometry.segments)};
  if (!NarrowTakes(geometry, narrow, device) || (is_wide && wide_takes(kWide32))) return kWide32;
  return narrow;
}

bool ChooseUnit(const GemmArgs& first, const GemmArgs& second, Planes x_planes, const UnitWeights& weights,
                const DeviceTraits& device, std::span<const ProductTiles> table) {
  GemmTile tile;
  if (!UnitTakes(first, second, weights, &tile, device)) return false;
  if (const ProductTiles* const row = FindTiles(table, first, x_planes); row != nullptr) {
    return row->unit_streams > 0 && StreamsOf(first) >= row->unit_streams;
  }
  return 2 * BlocksOf(second, tile) >= 3 * device.processors;
}

GemmTile ChooseTile(const GemmArgs& args, Planes x_planes, const DeviceTraits& device,
                    std::span<const ProductTiles> table, bool beside) {
  const GemmGeometry& geometry = args.geometry;
  if (beside && device.clusters && IsGrouped(geometry)) {
    for (const int columns : {32, 16, 8}) {
      if (columns > 8 && geometry.columns <= columns / 2) continue;
      const GemmTile tile = {GemmForm::kCluster, columns, kClusterTiles, true};
      if (ClusterTakes(args, x_planes, tile, device)) return tile;
    }
  }
  if (const ProductTiles* const row = FindTiles(table, args, x_planes); row != nullptr) {
    const GemmTile& tile = row->TileFor(TableStreams(StreamsOf(args), device));
    if (CanRun(args, x_planes, tile, device)) return tile;
  }
  return RuleTile(args, x_planes, device);
}

}  // namespace qtts::cuda::codec
