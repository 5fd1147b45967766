// SPDX-License-Identifier: LGPL-2.1-or-later
#include "codec/warpgroup_plan.h"

#include <algorithm>

#include "codec/gemm.h"
#include "runtime/matrix_operand.h"

namespace qtts::cuda::codec {

size_t SharedBytes(const WarpgroupPlan& plan, int outputs, int planes, size_t extras) {
  return kOperandGroupBytes + static_cast<size_t>(plan.stages) * static_cast<size_t>(StageBytes(outputs)) +
         static_cast<size_t>(plan.slots) * static_cast<size_t>(plan.staged) * kRowBytes * static_cast<size_t>(planes) +
         extras + static_cast<size_t>(plan.staged * plan.taps) * sizeof(uintptr_t);
}

WarpgroupPlan PlanWarpgroups(const GemmArgs& gemm, int outputs, int row_tiles, size_t extras,
                             const DeviceTraits& device) {
  constexpr int kMinStages = 2;
  constexpr int kMinSlots = 2;
  const bool streams = StreamsColumns(gemm.geometry);
  const GemmGeometry geometry = streams ? AsOneTap(gemm.geometry) : gemm.geometry;
  const int columns = TileColumns(row_tiles);
  const Staging staging = StagingOf(geometry, gemm.x.rows, columns);
  WarpgroupPlan plan;
  plan.column_tiles = CeilDiv(geometry.columns, columns);
  plan.halo = staging.halo;
  plan.staged = staging.staged;
  plan.slots = streams ? kMinSlots : geometry.group_blocks;
  plan.taps = streams ? gemm.geometry.taps : 1;
  plan.stages = kMinStages;
  const auto fits = [&] { return SharedBytes(plan, outputs, gemm.weights.planes, extras) <= device.shared_bytes; };
  if (!fits()) {
    plan.stages = 0;
    return plan;
  }
  const auto grow = [&](int32_t* what, int most) {
    const int32_t before = *what;
    while (*what < most) {
      ++*what;
      if (fits()) continue;
      --*what;
      break;
    }
    return *what > before;
  };
  if (streams) {
    // As many chunks of weights as of columns, as far as possible.
    const auto more_stages = [&] { return grow(&plan.stages, std::min(plan.stages + 1, kMaxStages)); };
    const auto more_slots = [&] { return grow(&plan.slots, std::min(plan.slots + 1, kMaxSlots)); };
    while (plan.stages * StageChunks(gemm.weights.planes) <= plan.slots ? more_stages() || more_slots()
                                                                        : more_slots() || more_stages()) {
    }
    return plan;
  }
  // A third stage, then columns of the next group beside those of this one, then more weights.
  grow(&plan.stages, kMinStages + 1);
  grow(&plan.slots, kMaxGroupSlots);
  grow(&plan.stages, kMaxStages);
  return plan;
}

}  // namespace qtts::cuda::codec
