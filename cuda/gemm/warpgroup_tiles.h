// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_GEMM_WARPGROUP_TILES_H_
#define QTTS_CUDA_GEMM_WARPGROUP_TILES_H_

#include <cstddef>
#include <cstdint>

#include "gemm/gemm.h"
#include "gemm/swizzled.h"
#include "runtime/fragment.h"

// Where everything lies in a product of warpgroups. constexpr, for the kernel and for a test on the host that loads,
// multiplies and stores each element once.
namespace qtts::cuda::gemm {

inline constexpr int kGroupOutputs = 64;  // weight rows of a warpgroup's instruction
inline constexpr int kWarpOutputs = 16;
inline constexpr int kGroupWarps = 4;
inline constexpr int kStageColumns = kSwizzledColumns;
inline constexpr int kStageChunks = kStageColumns / kChunk;
// Weights of 16 rows of a stage, and rows' bytes of a stage.
inline constexpr int kStageWarpBytes = kWarpOutputs * kStageColumns * 2;
inline constexpr int kStageRowBytes = kStageColumns * 2;

// Packed weights of two chunks lie together for each packed tile: what one bulk copy brings.
struct WeightUnits {
  int rows;       // weight rows of a packed tile, 8 or 16
  int bytes;      // of a stage
  int count;      // packed tiles of the matrix
  int per_group;  // packed tiles of a warpgroup's instruction
};
constexpr WeightUnits UnitsOf(GemmKind kind, int outputs) {
  const int rows = TileOutputs(kind);
  const int outputs_of_tile = kind == GemmKind::kNormGated ? rows / 2 : rows;
  return {rows, rows * kStageColumns * 2, (outputs + outputs_of_tile - 1) / outputs_of_tile, kGroupOutputs / rows};
}
// Bytes from the matrix's begin to a unit's stage.
constexpr int64_t UnitSource(const WeightUnits& units, int unit, int chunks, int stage) {
  return (static_cast<int64_t>(unit) * chunks + static_cast<int64_t>(stage) * kStageChunks) * (units.rows * kChunk * 2);
}
// Bytes from a warp's weights in a stage to the 16 bytes of lane 0, for its rows 0 to 7 or, `upper`, 8 to 15.
constexpr int FragmentOffset(const WeightUnits& units, int chunk, bool upper) {
  constexpr int kHalf = 8 * kChunk * 2;
  return units.rows == 8 ? (upper ? kStageWarpBytes / 2 : 0) + chunk * kHalf : (2 * chunk + (upper ? 1 : 0)) * kHalf;
}
// Weight rows of all outputs, and the output of a weight row.
constexpr int64_t WeightRows(GemmKind kind, int outputs) {
  return (kind == GemmKind::kNormGated ? 2 : 1) * static_cast<int64_t>(outputs);
}

constexpr int StageBytes(int warpgroups, int rows) {
  return warpgroups * kGroupWarps * kStageWarpBytes + rows * kStageRowBytes;
}

}  // namespace qtts::cuda::gemm

#endif  // QTTS_CUDA_GEMM_WARPGROUP_TILES_H_
