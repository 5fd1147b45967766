// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CODEC_WARPGROUP_PARTS_CUH_
#define QTTS_CUDA_CODEC_WARPGROUP_PARTS_CUH_

#include <cstddef>
#include <cstdint>

#include "codec/epilogue.cuh"
#include "codec/gemm.h"
#include "codec/half_math.cuh"
#include "codec/staged_columns.cuh"
#include "codec/warpgroup_plan.h"
#include "runtime/async_copy.cuh"
#include "runtime/barrier.cuh"
#include "runtime/fragment.h"
#include "runtime/matrix_operand.h"
#include "runtime/warpgroup.cuh"

// Common code of the codec's kernels of warpgroups: products of many columns, in which each warpgroup multiplies 64
// columns, or twice 64, by all weights of the block.
//
// The instruction's rows are the product's columns: they come from registers, which lets every tap of a convolution
// read the same rows of shared memory, moved by its lag. A chunk of 32 channels of these columns, and of the past that
// they look back to (each stream's halo), is therefore copied once for all taps. Weights come as the instruction reads
// them, see PackWarpgroup().
//
// Two warpgroups are consumers: they multiply. The third is the producer: one warp copies weights, the others columns.
// A block goes through several tiles of columns with the same weights.
namespace qtts::cuda::codec {

inline constexpr int kConsumers = 8;  // warps
inline constexpr int kConsumerThreads = kConsumers * 32;
inline constexpr int kThreads = kConsumerThreads + 128;
// Returns the weight tiles of a warp's accumulators that go through shared memory at a time.
constexpr int PieceTiles(int outputs) { return outputs % 96 == 0 ? 6 : 4; }
inline constexpr int kMaxPieceTiles = 6;
inline constexpr int kPieceColumns = 8;
// Fours of a column: the lanes' accesses lie in different banks.
inline constexpr int kAccumulatorStride = kMaxPieceTiles * kTileRows / 4 + 4;
// Shared memory of a tile: accumulators on their way to the epilogue, places of its columns, and the barriers.
template <int kTileColumns>
struct TileMemory {
  float4 accumulators[kConsumers][kPieceColumns][kAccumulatorStride];
  Column places[kTileColumns];
  uint64_t barriers[2 * kMaxSlots + 2 * kMaxStages];
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

inline constexpr int kCopyThreads = 96;
// Registers of a thread after setmaxnreg; 384 threads start with 168 each.
inline constexpr int kConsumerRegisters = 232;
inline constexpr int kProducerRegisters = 40;

__device__ __forceinline__ void SyncCopyThreads() { asm volatile("bar.sync 1, %0;" ::"n"(kCopyThreads) : "memory"); }

// The barriers of the two rings: of slots with columns, and of stages with weights.
struct Barriers {
  uint32_t first;

  __device__ __forceinline__ uint32_t slot_full(int i) const { return first + static_cast<uint32_t>(i * 8); }
  __device__ __forceinline__ uint32_t slot_empty(int i) const {
    return first + static_cast<uint32_t>((kMaxSlots + i) * 8);
  }
  __device__ __forceinline__ uint32_t stage_full(int i) const {
    return first + static_cast<uint32_t>((2 * kMaxSlots + i) * 8);
  }
  __device__ __forceinline__ uint32_t stage_empty(int i) const {
    return first + static_cast<uint32_t>((2 * kMaxSlots + kMaxStages + i) * 8);
  }

  // Initializes the barriers; called by one thread.
  __device__ __forceinline__ void Initialize(const WarpgroupPlan& t) const {
    for (int i = 0; i < t.slots; ++i) {
      InitializeBarrier(slot_full(i), kCopyThreads);
      InitializeBarrier(slot_empty(i), kConsumers);
    }
    for (int i = 0; i < t.stages; ++i) {
      InitializeBarrier(stage_full(i), 1);
      InitializeBarrier(stage_empty(i), kConsumers);
    }
    FenceBarriers();
  }
};

// Copies the weights of all of the block's tiles to the ring at `stages`; called by one thread. from(i) returns
// the source of a tile's i-th stage.
template <int kStageBytes, typename From>
__device__ __forceinline__ void BringWeights(const WarpgroupPlan& t, const Barriers& barriers, uint32_t stages,
                                             int stages_of_tile, const From& from) {
  RingPlace stage;
  int of_tile = 0;
  const auto bring = [&] {
    ArriveAndExpect(barriers.stage_full(stage.index), kStageBytes);
    CopyBulk(stages + static_cast<uint32_t>(stage.index * kStageBytes), from(of_tile), kStageBytes,
             barriers.stage_full(stage.index));
    stage.Next(t.stages);
    if (++of_tile == stages_of_tile) of_tile = 0;
  };
  const int tiles =
      (t.column_tiles - static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
  int left = tiles * stages_of_tile;
  // The first do not wait for the kernel before.
  for (int i = 0; i < t.stages && left > 0; ++i, --left) bring();
  WaitForPrevious();
  for (; left > 0; --left) {
    AwaitPhase(barriers.stage_empty(stage.index), stage.phase ^ 1);
    bring();
  }
}

// Copies the columns of all of the block's tiles to the ring at `slots`, a block of channels in a ring slot; called by
// the copy threads. `rows` are the staged columns' addresses, in shared memory.
template <int kTileColumns, int kPlanes>
__device__ __forceinline__ void BringColumns(const GemmArgs& a, const WarpgroupPlan& t, const Barriers& barriers,
                                             uint32_t slots, int slot_bytes, uintptr_t* rows) {
  const int thread = static_cast<int>(threadIdx.x) - (kThreads - kCopyThreads);
  WaitForPrevious();
  RingPlace slot;
  for (int tile = static_cast<int>(blockIdx.x); tile < t.column_tiles; tile += static_cast<int>(gridDim.x)) {
    SyncCopyThreads();  // nobody needs the rows of the tile before
    PlaceStaged<kCopyThreads>(a, t.halo, t.staged, tile * kTileColumns, kTileColumns, thread, rows);
    SyncCopyThreads();
    const int blocks = a.geometry.groups * a.geometry.group_blocks;
    for (int block = 0; block < blocks; ++block) {
      AwaitPhase(barriers.slot_empty(slot.index), slot.phase ^ 1);
      const int unit = thread % 4;
      uint32_t to = slots + static_cast<uint32_t>(slot.index * slot_bytes + thread * 16);
      for (int i = thread / 4; i < t.staged; i += kCopyThreads / 4) {
        const uintptr_t row = rows[i];
        const __half* from = reinterpret_cast<const __half*>(row & ~uintptr_t{1}) + block * kChannelBlock + unit * 8;
        if (row == 0) from = static_cast<const __half*>(a.x.data);
        CopyAsync16(to, from, row != 0);
        if constexpr (kPlanes == 2) {
          const int64_t plane = (row & 1) != 0 ? a.x.history_plane : a.x.plane;
          CopyAsync16(to + static_cast<uint32_t>(t.staged * kRowBytes), row != 0 ? from + plane : from, row != 0);
        }
        to += kCopyThreads * 16;
      }
      ArriveWithCopies(barriers.slot_full(slot.index));
      slot.Next(t.slots);
    }
  }
}

// The operands and products of a warp's columns of a tile.
template <int kOutputs, int kRowTiles, int kPlanes>
struct Products {
  using Operands = uint32_t[kRowTiles][kPlanes][4];  // of a k-step
  using Sums = float[kRowTiles][kOutputs / 2];

  // Begins at `first_row`, the warp's first column of the tile.
  __device__ __forceinline__ Products(const GemmArgs& a, const WarpgroupPlan& t, int first_column, int first_row,
                                      int lane) {
    plane_bytes = t.staged * kRowBytes;
    const int first_stream = Divide(first_column, a.x.by_rows);
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        at[i][h] =
            StagedOffset(a, t.halo, first_column, first_stream, first_row + i * 64 + LeftFragment::Row(lane, h), lane);
      }
    }
  }

  __device__ __forceinline__ void Load(uint32_t from, int step, Operands& to) const {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int p = 0; p < kPlanes; ++p) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const uint2 v = LoadShared8(from + static_cast<uint32_t>(at[i][h] + p * plane_bytes + step * 8));
          to[i][p][h] = v.x;
          to[i][p][2 + h] = v.y;
        }
      }
    }
  }

  // Multiplies a k-step, smallest products first, as MultiplyStep() has them.
  static __device__ __forceinline__ void Multiply(const Operands& v, uint32_t weights, Sums& sums) {
    FenceMmas();
    if constexpr (kPlanes == 2) {
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        WarpgroupMma<kOutputs, __half>::Run(sums[i], v[i][0], MatrixDescriptor(weights + 64), 1);
      }
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        WarpgroupMma<kOutputs, __half>::Run(sums[i], v[i][1], MatrixDescriptor(weights), 1);
      }
    }
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      WarpgroupMma<kOutputs, __half>::Run(sums[i], v[i][0], MatrixDescriptor(weights), 1);
    }
    CommitMmas();
  }

  static __device__ __forceinline__ void Keep(Operands& v) {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int p = 0; p < kPlanes; ++p) KeepInPlace(v[i][p]);
    }
  }

  int at[kRowTiles][2];  // bytes from a slot's begin to what the lane has of its columns
  int plane_bytes;
};

// Returns the first of a consumer warp's columns of a tile.
template <int kRowTiles>
__device__ __forceinline__ int FirstRow(int warp) {
  return warp / 4 * (64 * kRowTiles) + warp % 4 * 16;
}

// Fills the places of a warp's columns of the tile from `first_column`.
template <int kRowTiles>
__device__ __forceinline__ void PlaceTile(const GemmArgs& a, int first_column, int first_row, int lane,
                                          Column* places) {
  __syncwarp();
  if (lane < 16) {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      const int row = first_row + i * 64 + lane;
      places[row] = ColumnOf(a, first_column + row);
    }
  }
}

// Clears the accumulators. The first MMA overwrites them, but the compiler can't see that and would keep their former
// values alive.
template <int kRowTiles, int kSums>
__device__ __forceinline__ void Clear(float (&sums)[kRowTiles][kSums]) {
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int s = 0; s < kSums; ++s) sums[i][s] = 0;
  }
}

// Places of a consumer warp in the two rings.
struct RingPlaces {
  RingPlace slot, stage;
};

// Computes a tile's sums over all taps and channels: in `sums`, or, with kTotals, which may have more than one segment,
// in `totals`. `slots` and `stages` are the rings.
template <int kOutputs, int kRowTiles, int kPlanes, bool kTotals>
__device__ __forceinline__ void MultiplyTile(const GemmArgs& a, const WarpgroupPlan& t, const Barriers& barriers,
                                             uint32_t slots, uint32_t stages, int slot_bytes,
                                             const Products<kOutputs, kRowTiles, kPlanes>& products, int lane,
                                             RingPlaces& at, float (&sums)[kRowTiles][kOutputs / 2],
                                             float (&totals)[kTotals ? kRowTiles : 1][kOutputs / 2]) {
  typename Products<kOutputs, kRowTiles, kPlanes>::Operands x[2];  // of a chunk's two k-steps
  int half = 0;                                                    // of a stage with two chunks
  uint32_t to_free = 0;  // barrier of the stage whose products have been started; 0: none
  const auto free_stage = [&] {
    if (to_free != 0 && lane == 0) Arrive(to_free);
    to_free = 0;
  };

#pragma unroll 1
  for (int group = 0; group < a.geometry.groups; ++group) {
    bool first = true;
    Clear(sums);
#pragma unroll 1
    for (int tap = 0; tap < a.geometry.taps; ++tap) {
      const uint32_t lag = static_cast<uint32_t>((a.geometry.taps - 1 - tap) * a.geometry.dilation * kRowBytes);
      RingPlace block = at.slot;
#pragma unroll 1
      for (int b = 0; b < a.geometry.group_blocks; ++b) {
        if (tap == 0) AwaitPhase(barriers.slot_full(block.index), block.phase);
        if (kPlanes == 2 || half == 0) AwaitPhase(barriers.stage_full(at.stage.index), at.stage.phase);
        const uint32_t from = slots + static_cast<uint32_t>(block.index * slot_bytes) - lag;
        const uint32_t weights = stages + static_cast<uint32_t>(at.stage.index * StageBytes(kOutputs) + half * 64);
        products.Load(from, 0, x[0]);
        products.Multiply(x[0], weights, sums);
        if (!first) {
          AwaitMmas<1>();
          products.Keep(x[1]);
          free_stage();
        }
        products.Load(from, 1, x[1]);
        products.Multiply(x[1], weights + 32, sums);
        AwaitMmas<1>();
        products.Keep(x[0]);
        first = false;
        if (tap + 1 == a.geometry.taps && lane == 0) Arrive(barriers.slot_empty(block.index));
        block.Next(t.slots);
        if (kPlanes == 2 || half == 1) {
          to_free = barriers.stage_empty(at.stage.index);
          at.stage.Next(t.stages);
        }
        if constexpr (kPlanes == 1) half ^= 1;
      }
    }
    for (int b = 0; b < a.geometry.group_blocks; ++b) at.slot.Next(t.slots);
    AwaitMmas<0>();
    products.Keep(x[1]);
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) KeepInPlace(sums[i]);
    free_stage();
    if constexpr (kTotals) {
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
        for (int s = 0; s < kOutputs / 2; ++s) totals[i][s] = group == 0 ? sums[i][s] : totals[i][s] + sums[i][s];
      }
    }
  }
  if (half == 1) {
    if (lane == 0) Arrive(barriers.stage_empty(at.stage.index));
    at.stage.Next(t.stages);
  }
}

// The epilogue of a warp's accumulators of a tile. A lane has four of each 16 weight rows, for two of each 64 columns.
// They go through shared memory in pieces of 96 or 64 weight rows and eight columns, so that eight lanes write whole
// lines of global memory, each four neighbouring float4. kColumns: columns of a piece that a lane finishes at once: two
// where registers allow it, since few other warps hide the latency of dependent instructions.
template <int kOutputs, int kRowTiles, End kEnd, int kColumns>
class TileEnd {
 public:
  // Begins to load the first residuals. `first_row` is the warp's first column of the tile.
  __device__ __forceinline__ TileEnd(const GemmArgs& a, int first_tile, int first_column, int first_row, int lane)
      : first_tile_(first_tile), first_column_(first_column), first_row_(first_row), lane_(lane) {
    LoadResiduals(a, 0);
  }

  // Takes with `normalise` a factor for each of the tile's columns, for ends that have one.
  template <typename Memory, typename ConstantsOf>
  __device__ __forceinline__ void Finish(const GemmArgs& a, Memory& m, const ConstantsOf& constants, int warp,
                                         const float* normalise, const float (&sums)[kRowTiles][kOutputs / 2]) {
#pragma unroll 1
    for (int turn = 0; turn < kTurns; ++turn) {
      if (turn % kTurnsOfPiece == 0) KeepAccumulators(turn / kTurnsOfPiece, sums, m.accumulators[warp]);
      Residuals before;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
#pragma unroll
        for (int n = 0; n < kTogether; ++n) before[c][n] = residuals_[c][n];
      }
      if (turn + 1 < kTurns) LoadResiduals(a, turn + 1);
      int columns[kColumns];
      Column places[kColumns];
      float factors[kColumns];
      bool any = false;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const int row = Row(turn, c);
        columns[c] = first_column_ + row;
        places[c] = m.places[row];
        factors[c] = kEnd == End::kGeneral && a.epilogue.rms_input != nullptr ? normalise[row] : 1.0F;
        any = any || places[c].frame >= 0;
      }
      // A tile's second half are values of the first half's gates.
      if (kEnd == End::kGeneral && a.epilogue.activation == Activation::kSwiGlu && lane_ % 4 >= 2) any = false;
      if (!any) continue;
      FinishQuads<kEnd, kTogether, kTileStep>(
          a, first_tile_, Tile(turn), lane_ % 4 * 4, columns, places, factors, constants,
          [&](int c, int n, int) { return before[c][n]; },
          [&](int c, int n, int of_tile) {
            return m.accumulators[warp][turn % kTurnsOfPiece * kTurnColumns + c * kColumnLanes + lane_ / 8]
                                 [(lane_ % 8 / 4 + n * kTileStep) * 4 + of_tile / 4];
          });
    }
  }

 private:
  static constexpr int kPieceTiles = PieceTiles(kOutputs);
  static constexpr int kTileStep = 2;  // eight lanes have two tiles of a column
  static constexpr int kTogether = kPieceTiles / kTileStep;
  static constexpr int kColumnLanes = 4;  // columns that a warp's lanes have at once
  static constexpr int kTurnColumns = kColumnLanes * kColumns;
  static constexpr int kTurnsOfPiece = kPieceColumns / kTurnColumns;
  static constexpr int kPiecesPerColumn = kOutputs / (kPieceTiles * kTileRows);
  static constexpr int kPieces = kRowTiles * 2 * kPiecesPerColumn;
  static constexpr int kTurns = kPieces * kTurnsOfPiece;
  using Residuals = float4[kColumns][kTogether];

  // Return the c-th of the lane's columns of a turn, and its first tile there:
  __device__ __forceinline__ int Row(int turn, int c) const {
    const int piece = turn / kTurnsOfPiece;
    return first_row_ + piece / (2 * kPiecesPerColumn) * 64 + piece / kPiecesPerColumn % 2 * 8 +
           turn % kTurnsOfPiece * kTurnColumns + c * kColumnLanes + lane_ / 8;
  }
  __device__ __forceinline__ int Tile(int turn) const {
    return turn / kTurnsOfPiece % kPiecesPerColumn * kPieceTiles + lane_ % 8 / 4;
  }

  __device__ __forceinline__ void LoadResiduals(const GemmArgs& a, int turn) {
    if constexpr (kEnd == End::kGeneral || kEnd == End::kPlain || kEnd == End::kResidual) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
#pragma unroll
        for (int n = 0; n < kTogether; ++n) {
          residuals_[c][n] = ResidualAt(a, first_column_ + Row(turn, c),
                                        (first_tile_ + Tile(turn) + n * kTileStep) * kTileRows + lane_ % 4 * 4);
        }
      }
    }
  }

  __device__ __forceinline__ void KeepAccumulators(int piece, const float (&sums)[kRowTiles][kOutputs / 2],
                                                   float4 (&to)[kPieceColumns][kAccumulatorStride]) const {
    __syncwarp();
#pragma unroll
    for (int of = 0; of < kPieces; ++of) {
      if (piece != of) continue;  // a branch: selections would be up to four instructions for each sum
      const float* const from =
          &sums[of / (2 * kPiecesPerColumn)][8 * (of % kPiecesPerColumn * kPieceTiles)] + of / kPiecesPerColumn % 2 * 2;
#pragma unroll
      for (int n = 0; n < kPieceTiles; ++n) {
        to[lane_ / 4][4 * n + lane_ % 4] = {from[8 * n], from[8 * n + 1], from[8 * n + 4], from[8 * n + 5]};
      }
    }
    __syncwarp();
  }

  const int first_tile_, first_column_, first_row_, lane_;
  Residuals residuals_;  // of the next turn
};

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace qtts::cuda::codec

#endif  // QTTS_CUDA_CODEC_WARPGROUP_PARTS_CUH_
