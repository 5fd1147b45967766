// SPDX-License-Identifier: LGPL-2.1-or-later
#include "codec/staged_plan.h"

#include <algorithm>

namespace qtts::cuda::codec {
namespace {

// Shared memory that the driver keeps for each block.
constexpr size_t kBytesOfDriver = 1024;

StagedPlan PlanOf(const GemmArgs& gemm, const GemmTile& tile, int stages, bool streams, const StagedSizes& sizes) {
  const GemmGeometry& own = gemm.geometry;
  const GemmGeometry geometry = streams ? AsOneTap(own) : own;
  const int planes = gemm.weights.planes;
  const Staging staging = StagingOf(geometry, gemm.x.rows, tile.columns);
  StagedPlan plan;
  plan.groups = geometry.groups;
  plan.taps = geometry.taps;
  plan.group_blocks = geometry.group_blocks;
  plan.lag_bytes = streams ? 0 : geometry.dilation * kRowBytes;
  plan.streams = streams ? 1 : 0;
  plan.halo = staging.halo;
  plan.staged = staging.staged;
  plan.slots = SlotsAhead(geometry.taps, geometry.group_blocks, stages - 1);
  plan.slot_bytes = staging.staged * kRowBytes * planes;
  plan.stages = stages;
  plan.ring_bytes = std::max(stages * StagedStageBytes(tile.tiles, planes) + plan.slots * plan.slot_bytes,
                             static_cast<int32_t>(sizes.exchange));
  plan.rows = streams ? own.taps * tile.columns : staging.staged;
  return plan;
}

}  // namespace

size_t StagedBytes(const StagedPlan& plan, const StagedSizes& sizes) {
  return static_cast<size_t>(plan.ring_bytes) + sizes.extras + static_cast<size_t>(plan.rows) * sizeof(uintptr_t);
}

StagedPlan PlanStaged(const GemmArgs& gemm, const GemmTile& tile, const StagedSizes& sizes,
                      const DeviceTraits& device) {
  const GemmGeometry& geometry = gemm.geometry;
  const auto blocks = static_cast<size_t>(StagedBlocksOfSm(tile.columns, tile.tiles));
  // An SM has kBytesOfDriver more than a block may have.
  const size_t most = (device.shared_bytes + kBytesOfDriver) / blocks - kBytesOfDriver;
  const bool shares = !StreamsColumns(geometry) && geometry.taps > 1;
  for (const bool streams : {false, true}) {
    if (!streams && !shares) continue;
    if (streams && geometry.chunks % geometry.segments != 0) break;
    for (int stages = kMaxStagedStages; stages >= 2; --stages) {
      const StagedPlan plan = PlanOf(gemm, tile, stages, streams, sizes);
      if (StagedBytes(plan, sizes) <= most) return plan;
    }
  }
  return {};
}

}  // namespace qtts::cuda::codec
