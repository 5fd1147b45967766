// SPDX-License-Identifier: LGPL-2.1-or-later
#include "codec/warpgroup_plan.h"

#include "codec/gemm.h"
#include "runtime/matrix_operand.h"

namespace qtts::cuda::codec {

size_t SharedBytes(const WarpgroupPlan& plan, int outputs, int planes, size_t extras) {
  return kOperandGroupBytes + static_cast<size_t>(plan.stages) * static_cast<size_t>(StageBytes(outputs)) +
         static_cast<size_t>(plan.slots) * static_cast<size_t>(plan.staged) * kRowBytes * static_cast<size_t>(planes) +
         extras + static_cast<size_t>(plan.staged) * sizeof(uintptr_t);
}

WarpgroupPlan PlanWarpgroups(const GemmArgs& gemm, int outputs, int row_tiles, size_t extras,
                             const DeviceTraits& device) {
  constexpr int kLeastStages = 2;
  const GemmGeometry& geometry = gemm.geometry;
  const int columns = TileColumns(row_tiles);
  const int rows = gemm.x.rows;
  // Streams that a tile has a part of at most.
  const int streams = rows % columns == 0 ? 1 : columns % rows == 0 ? columns / rows : (columns - 2) / rows + 2;
  WarpgroupPlan plan;
  plan.column_tiles = CeilDiv(geometry.columns, columns);
  plan.halo = (geometry.taps - 1) * geometry.dilation;
  plan.staged = columns + streams * plan.halo;
  plan.slots = geometry.group_blocks;
  plan.stages = kLeastStages;
  const auto fits = [&] { return SharedBytes(plan, outputs, gemm.weights.planes, extras) <= device.shared_bytes; };
  if (!fits()) {
    plan.stages = 0;
    return plan;
  }
  // A third stage, then columns of the next group beside those of this one, then more weights.
  const auto grow = [&](int32_t* what, int most) {
    while (*what < most) {
      ++*what;
      if (fits()) continue;
      --*what;
      return;
    }
  };
  grow(&plan.stages, kLeastStages + 1);
  grow(&plan.slots, kMostSlots);
  grow(&plan.stages, kMostStages);
  return plan;
}

}  // namespace qtts::cuda::codec
