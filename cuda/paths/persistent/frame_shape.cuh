// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_FRAME_SHAPE_CUH_
#define QTTS_CUDA_PATHS_PERSISTENT_FRAME_SHAPE_CUH_

#include "gemm/gemm.h"
#include "paths/persistent/frame_kernel.h"
#include "rules/product.cuh"

// Constants of the persistent kernel: division of threads, widths, rows and passes.
namespace qtts::cuda::persistent {

inline constexpr int kWarps = kPersistentWarps;
static_assert(kWarps == kShares, "a share of a product's columns for each warp");
inline constexpr int kTeamThreads = 32 * kWarps;
inline constexpr int kWarpgroup = 128;
inline constexpr int kThreads = kTeamThreads + kWarpgroup;  // two of the last warpgroup copy weights
// Registers per thread. The last warpgroup releases most of its initial registers to the team (setmaxnreg). On each of
// an SM's four sub-partitions the thread block thus takes three warps of kRegisters and leaves registers for one warp
// of 128 to other kernels.
inline constexpr int kRegisters = 128;
inline constexpr int kTeamRegisters = 176;
inline constexpr int kCopyRegisters = 32;
static_assert(kTeamThreads * kTeamRegisters + kWarpgroup * kCopyRegisters <= kThreads * kRegisters);
inline constexpr int kBlocks = kPersistentBlocks;
inline constexpr int kHeadDim = kPersistentHeadDim;
inline constexpr int kHalf = kHeadDim / 2;
inline constexpr int kNewRows = 2;
inline constexpr int kHeads = kPersistentHeads;
inline constexpr int kKvHeads = kPersistentKvHeads;
inline constexpr int kQueryWidth = kHeads * kHeadDim;
inline constexpr int kQkvWidth = (kHeads + 2 * kKvHeads) * kHeadDim;
inline constexpr int kGroup = kPersistentHeads / kPersistentKvHeads;  // query heads of a key head

// A team sees to the predictor's first two positions, hidden state and first code, in one pass where that makes no
// more than so many rows.
inline constexpr int kMaxPairedRows = 4;
constexpr bool Paired(int streams) { return 2 * streams <= kMaxPairedRows; }
constexpr int MaxRows(int streams) { return Paired(streams) ? 2 * streams : streams; }

// Whether rows are so many that shared memory and registers have to be saved.
constexpr bool NeedsSmallTiles(int rows) { return rows > kMaxPairedRows; }
// Rows that a warp brings in at once, each lane 16 bytes `loads` times of each.
constexpr int RowsTogether(int rows, int loads) {
  const int most = NeedsSmallTiles(rows) ? 16 / loads : rows;
  int together = rows;
  while (together > most) together /= 2;
  return together;
}
// Tiles of gate and up that are finished together: those whose sums there is room for.
constexpr int GatedTiles(int hidden, int rows) {
  const int tiles = PersistentIntermediate(hidden) / 8 / kBlocks;
  return NeedsSmallTiles(rows) && tiles > 3 ? 3 : tiles;
}
// Rows whose angles a block keeps: all, or the one that it attends to.
constexpr int AngleRows(int streams) { return NeedsSmallTiles(streams) ? 1 : MaxRows(streams); }

// The predictor's pass p leads from code p to code p + 1. The first also takes the hidden state, at position 0, in rows
// of its own or, where these would be too many, in a pass before it.
inline constexpr int kHiddenPass = -1;
inline constexpr int kTalkerPass = -2;

// Columns of a warp's share of a product, and elements between its staged rows: no bank conflicts.
constexpr int ShareOf(int columns) { return columns / kWarps; }
constexpr int StageStride(int columns) { return (ShareOf(columns) / kChunk | 1) * kChunk; }

}  // namespace qtts::cuda::persistent

#endif  // QTTS_CUDA_PATHS_PERSISTENT_FRAME_SHAPE_CUH_
