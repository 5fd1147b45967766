// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_FRAME_SHAPE_CUH_
#define QTTS_CUDA_PATHS_PERSISTENT_FRAME_SHAPE_CUH_

#include "gemm/gemm.h"
#include "paths/persistent/frame_deal.h"
#include "paths/persistent/frame_kernel.h"
#include "paths/persistent/weight_storage.cuh"
#include "rules/product.cuh"

// Constants of the persistent kernel: division of threads, widths, rows and passes.
namespace qtts::cuda::persistent {

inline constexpr int kWarps = kPersistentWarps;
static_assert(kWarps == kShares, "a share of a product's columns for each warp");
inline constexpr int kTeamThreads = 32 * kWarps;
inline constexpr int kWarpgroup = 128;
inline constexpr int kThreads = kTeamThreads + kWarpgroup;  // two warps of the last warpgroup bring weights
// Registers per thread. In code for compute capability 9.0 alone the last warpgroup releases most of its initial
// registers to the team (setmaxnreg). On each of an SM's four sub-partitions the thread block thus takes three warps of
// kRegisters and leaves registers for one warp of 128 to other kernels. Elsewhere all warps have the same number: three
// warps take a sub-partition's 512 a lane. With 128, which would leave some to the codec, a frame was no shorter.
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr int kRegisters = 168;
#else
inline constexpr int kRegisters = 128;
#endif
inline constexpr int kTeamRegisters = 176;
inline constexpr int kCopyRegisters = 32;
static_assert(kTeamThreads * kTeamRegisters + kWarpgroup * kCopyRegisters <= kThreads * 128);
inline constexpr int kMaxBlocks = kPersistentMaxBlocks;
inline constexpr int kMaxRounds = kPersistentMaxBlocks / kPersistentMinBlocks;  // of AddProduct()
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

// Returns whether rows are so many that shared memory and registers have to be saved.
constexpr bool NeedsSmallTiles(int rows) { return rows > kMaxPairedRows; }
// Returns the rows that a warp brings in at once, each lane 16 bytes `loads` times of each.
constexpr int RowsTogether(int rows, int loads) {
  const int most = NeedsSmallTiles(rows) ? 16 / loads : rows;
  int together = rows;
  while (together > most) together /= 2;
  return together;
}

// One compiled form of the kernel (FrameKernelForm). A block that is not folded has as many tiles as all others; a
// folded one may have any number, in rounds of as many, and fewer in the last round.
template <int kTalkerHidden_, int kStreams_, bool kFolded_, typename Storage_ = Bf16Weights>
struct FrameTraits {
  static constexpr int kTalkerHidden = kTalkerHidden_;
  static constexpr int kStreams = kStreams_;
  static constexpr bool kFolded = kFolded_;
  using Storage = Storage_;

  // Returns the tiles of queries, keys and values that are finished together, and of gate and up: those whose sums
  // there is room for.
  static constexpr int QkvTiles(int rows) { return kFolded && NeedsSmallTiles(rows) ? 1 : kQkvTiles / kMaxBlocks; }
  static constexpr int GatedTiles(int hidden, int rows) {
    const int tiles = persistent::GatedTiles(hidden) / kMaxBlocks;
    if (kFolded) return NeedsSmallTiles(rows) ? 1 : tiles > 3 && rows > 2 ? 2 : tiles;
    return NeedsSmallTiles(rows) && tiles > 3 ? 3 : tiles;
  }
  // Returns the outputs of the residual stream that a block has in a round.
  static constexpr int OwnOutputs(int hidden, int rows) { return hidden / kMaxBlocks * rows; }

  // Parts of the attention that a block has in a pass at most, and its splits.
  static constexpr int kMaxParts = MaxParts(kStreams, kFolded);
  static constexpr int kMaxItems = MaxItems(kStreams, kFolded);
  static_assert(kMaxItems <= kTeamThreads, "an item for each thread");
  // A block of many rows keeps the angles of the one that it attends to, else of all rows.
  static constexpr bool kOwnAngles = NeedsSmallTiles(kStreams) && !kFolded;
  static constexpr int kAngleRows = kOwnAngles ? 1 : MaxRows(kStreams);
  // Warps that combine splits, and whether they do it in the place of their staged columns, which are written
  // afterwards, instead of memory of its own.
  static constexpr bool kCombinesInPlace = kFolded ? kStreams >= 4 : NeedsSmallTiles(kStreams);
  static constexpr int kCombiners = !kFolded ? kStreams : kCombinesInPlace ? kWarps : 4;

  // Pieces that a warp waits for together at most (Block::Load()). There are at least as many slots.
  static constexpr int kMaxBulkWindow = kFolded && NeedsSmallTiles(kStreams) ? 3 : 6;
  static constexpr int kMaxAsyncWindow = Storage::kForm == WeightForm::kInt8 ? kMaxBulkWindow : 3;
};

// The predictor's pass p leads from code p to code p + 1. The first also takes the hidden state, at position 0, in rows
// of its own or, where these would be too many, in a pass before it.
inline constexpr int kHiddenPass = -1;
inline constexpr int kTalkerPass = -2;

// Returns the columns of a warp's share of a product, and elements between its staged rows: no bank conflicts.
constexpr int ShareOf(int columns) { return columns / kWarps; }
constexpr int StageStride(int columns) { return (ShareOf(columns) / kChunk | 1) * kChunk; }

}  // namespace qtts::cuda::persistent

#endif  // QTTS_CUDA_PATHS_PERSISTENT_FRAME_SHAPE_CUH_
