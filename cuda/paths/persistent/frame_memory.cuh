// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_FRAME_MEMORY_CUH_
#define QTTS_CUDA_PATHS_PERSISTENT_FRAME_MEMORY_CUH_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "paths/persistent/frame_deal.h"
#include "paths/persistent/frame_kernel.h"
#include "paths/persistent/frame_shape.cuh"
#include "paths/persistent/weight_ring.cuh"
#include "rules/candidates.cuh"
#include "runtime/device_math.cuh"

// Shared memory of a thread block of the persistent kernel, after the ring of weights.
namespace qtts::cuda::persistent {

// Candidates listed in shared memory: enough for all usual logits. Longer lists are in global memory.
inline constexpr int kFewCandidates = 1024;

// Part of the attention that this thread block computes in all layers of a pass: for one row, one query head or all
// query heads of a key head, every split_stride-th split from first_split on.
struct AttentionPart {
  int row;
  int head;          // first query head
  int new_rows;      // rows of this pass visible to the row, itself included
  int position;      // the row's
  int first_split;   // counted from position 0 on
  int first_record;  // the same split, counted from the first one that the row sees
  int split_stride;
  int splits;
  int row_splits;  // all splits visible to the row
  int first_item;  // of this block's split_starts, the part's first
  bool silent;     // publishes zeros for a skipped row
};

inline constexpr int kMergedSplits = 2;  // splits whose warps' results are combined at once

struct AttentionMemory {
  // Results of a split, by warps.
  struct WarpResults {
    alignas(16) float y[kWarps][kHeadDim];
    alignas(16) int exponents[kWarps];
    alignas(16) float sums[kWarps];
  };
  alignas(16) float q[kGroup][kHeadDim];
  alignas(16) __nv_bfloat16 new_keys[kNewRows][kHeadDim];
  alignas(16) __nv_bfloat16 new_values[kNewRows][kHeadDim];
  WarpResults results[kMergedSplits * kGroup];
};

inline constexpr int kCombined = 16;  // elements of a row that a block combines from splits
struct CombineMemory {
  float values[32][kCombined];
  float2 factors[32];  // and sums
};

// Staged rows, and memory in which a row's splits are combined.
template <int kElements, int kCombines>
struct RowMemory {
  alignas(16) __nv_bfloat16 stage[kElements];
  CombineMemory combine[kCombines];
};
// Without memory of its own: a row's splits are combined in the place of its warp's staged columns, which are written
// afterwards.
template <int kElements>
struct RowMemory<kElements, 0> {
  alignas(16) __nv_bfloat16 stage[kElements];
};

// Shared memory of products and attention, or of the choice of an id.
template <typename Traits>
union WorkMemory {
  static constexpr int kTalkerHidden = Traits::kTalkerHidden;
  static constexpr int kStreams = Traits::kStreams;
  struct Products {
    static constexpr int kStageElements =
        kWarps * (kStreams * StageStride(3 * kTalkerHidden) > MaxRows(kStreams) * StageStride(3 * kPersistentHidden)
                      ? kStreams * StageStride(3 * kTalkerHidden)
                      : MaxRows(kStreams) * StageStride(3 * kPersistentHidden));
    // Returns the rows of tiles that are finished together.
    static constexpr int TileRows(int hidden, int rows) {
      return rows * std::max({Traits::QkvTiles(rows), Traits::GatedTiles(hidden, rows), hidden / 8 / kMaxBlocks});
    }
    static constexpr int kPartials =
        kWarps * 16 * std::max(TileRows(kTalkerHidden, kStreams), TileRows(kPersistentHidden, MaxRows(kStreams)));
    // Rows are combined and staged when all warps have attended.
    union {
      RowMemory<kStageElements, Traits::kCombinesInPlace ? 0 : Traits::kCombiners> rows;
      AttentionMemory attention;
    };
    float partial[2][kPartials];
  } products;
  struct Choice {
    SamplingMemory memory;
    unsigned long long list[kFewCandidates];
    float logits[kPersistentVocab];
  } choice;
};

// A folded block's tiles, by width: kPersistentHidden, a wide talker's. The outputs of the residual stream that it has;
// others keep them in registers.
template <typename Traits, bool kFolded = Traits::kFolded>
struct FoldedMemory {};
template <typename Traits>
struct FoldedMemory<Traits, true> {
  static constexpr int kOutputs = std::max(Traits::OwnOutputs(Traits::kTalkerHidden, Traits::kStreams),
                                           Traits::OwnOutputs(kPersistentHidden, MaxRows(Traits::kStreams)));
  LayerDeal deals[2];
  float own[kMaxRounds * kOutputs];
};

template <typename Traits>
struct SharedMemory {
  static constexpr int kStreams = Traits::kStreams;
  RingBarriers ring;
  float squares[2][kWarps][MaxRows(kStreams)];
  float sine[Traits::kAngleRows][kHalf], cosine[Traits::kAngleRows][kHalf];
  int slots[kStreams];  // below 0: nothing to do
  // Rows of the pass.
  int sequences[MaxRows(kStreams)], positions[MaxRows(kStreams)];
  unsigned stop, gave_up;
  unsigned seen;     // see Block::Load()
  int splits;        // maximum over the rows
  bool shared_keys;  // whether parts are of all query heads of a key head
  int num_parts;
  AttentionPart parts[Traits::kMaxParts][kNewRows];  // by the new rows of a sequence
  __nv_bfloat16* split_starts[Traits::kMaxItems];    // keys of the parts' splits in layer 0
  PersistentStack stacks[2];
  PersistentLayer layers[kPersistentLayers];
  PredictorPass passes[kPersistentGroups - 1];
  [[no_unique_address]] FoldedMemory<Traits> folded;
  WorkMemory<Traits> work;
};

constexpr size_t RoundUp(size_t bytes) { return (bytes + 127) / 128 * 128; }

// Returns the block's tiles of a layer.
template <typename Traits>
__device__ __forceinline__ LayerDeal DealOf(const SharedMemory<Traits>& shared, int hidden) {
  if constexpr (Traits::kFolded) {
    return shared.folded.deals[hidden == kPersistentHidden ? 0 : 1];
  } else {
    const auto block = static_cast<int>(blockIdx.x);
    return {{block, OwnTiles(hidden) / kMaxBlocks},
            {block, kQkvTiles / kMaxBlocks},
            {block, GatedTiles(hidden) / kMaxBlocks}};
  }
}

// Without the ring, which comes first.
template <typename Traits>
inline constexpr size_t kSharedBytes = RoundUp(sizeof(SharedMemory<Traits>));

}  // namespace qtts::cuda::persistent

#endif  // QTTS_CUDA_PATHS_PERSISTENT_FRAME_MEMORY_CUH_
