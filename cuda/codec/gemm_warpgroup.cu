// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>

#include "codec/epilogue.cuh"
#include "codec/gemm.h"
#include "codec/half_math.cuh"
#include "runtime/async_copy.cuh"
#include "runtime/barrier.cuh"
#include "runtime/matrix_operand.h"
#include "runtime/succeeds.h"
#include "runtime/warpgroup.cuh"

// Products of many columns by warpgroups, each of which multiplies 64 columns, or twice 64, by all weights of the
// block.
//
// The instruction's rows are the product's columns: they come from registers, which lets every tap of a convolution
// read the same rows of shared memory, moved by its lag. So a block of 32 channels of these columns and of the past
// that they look back to (the halo of each stream among them) is copied once for all taps. Weights come as the
// instruction reads them, see PackWarpgroup().
//
// Two warpgroups multiply; one warp of the third brings weights, the others columns. Blocks go through tiles of columns
// with the same weights.
namespace qtts::cuda::codec {
namespace {

constexpr int kConsumers = 8;  // warps
constexpr int kConsumerThreads = kConsumers * 32;
constexpr int kThreads = kConsumerThreads + 128;
constexpr int kRowBytes = kChannelBlock * 2;  // of a column's channel block in shared memory, a plane
// Of a warp's sums: how many go through shared memory at a time.
constexpr int kPieceTiles = 6;
constexpr int kPieceOutputs = kPieceTiles * kTileRows;
constexpr int kPieceColumns = 8;
constexpr int kParkedStride = kPieceOutputs / 4 + 4;  // fours of a column: the lanes' accesses lie in different banks
constexpr int kMostSlots = 6;
constexpr int kMostStages = 6;

constexpr int TileColumns(int row_tiles) { return 128 * row_tiles; }
constexpr int StageBytes(int outputs) { return outputs * 128; }
// Chunks of a stage of weights: rows of 128 bytes are one chunk of two planes, or two of one.
constexpr int StageChunks(int planes) { return 2 / planes; }

struct WarpgroupArgs {
  GemmArgs gemm;
  int32_t column_tiles = 0;
  int32_t stages_of_tile = 0;  // of weights
  int32_t halo = 0;            // columns of a stream's past
  int32_t staged = 0;          // columns of a slot, halos included
  int32_t slots = 0;           // of a channel block of staged columns
  int32_t stages = 0;          // of weights, in shared memory
};

// What lies in shared memory behind the weights and the columns.
template <int kOutputs, int kTileColumns>
struct Extras {
  float4 parked[kConsumers][kPieceColumns][kParkedStride];
  Constants<kOutputs> constants;
  Column places[kTileColumns];
  uint64_t barriers[2 * kMostSlots + 2 * kMostStages];
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr int kCopyThreads = 96;
// Of the 168 that 384 threads have each.
constexpr int kConsumerRegisters = 232;
constexpr int kProducerRegisters = 40;
// Of a piece's columns, how many are finished together.
constexpr int kTurnColumns = 4;
constexpr int kTurnsOfPiece = kPieceColumns / kTurnColumns;
constexpr int kTileStep = 2;  // eight lanes have two tiles of a column
constexpr int kTogether = kPieceTiles / kTileStep;

__device__ __forceinline__ void SyncCopyThreads() { asm volatile("bar.sync 1, %0;" ::"n"(kCopyThreads) : "memory"); }

// Addresses of the staged columns' rows of the tile from `first_column`; 0 where there is none, the lowest bit set
// where a row lies in the history.
__device__ __forceinline__ void PlaceStaged(const WarpgroupArgs& t, int first_column, int tile_columns, int thread,
                                            uintptr_t* rows) {
  const GemmArgs& a = t.gemm;
  const int first_stream = Divide(first_column, a.x.by_rows);
  const int begin = first_column - first_stream * a.x.rows;  // time of the tile's first column
  for (int i = thread; i < t.staged; i += kCopyThreads) {
    // The streams of the tile lie one after the other, each behind its halo.
    int column = i - t.halo;  // the tile's, of the first stream
    int stream = 0;
    int end = a.x.rows - begin;  // of the stream's columns
    while (column >= end && end < tile_columns) {
      column -= t.halo;
      ++stream;
      if (column < end) break;  // in the halo of the next one
      end += a.x.rows;
    }
    const int stream_begin = stream == 0 ? 0 : stream * a.x.rows - begin;
    const int from_begin = column - stream_begin;  // negative: of the past
    const int time = (stream == 0 ? begin : 0) + max(from_begin, 0);
    const int lag = max(-from_begin, 0);
    const Column place = ColumnOf(a, (first_stream + stream) * a.x.rows);
    const __half* const row = place.frame < 0 || time >= a.x.rows || column >= tile_columns
                                  ? nullptr
                                  : SourceRow<__half>(a.x, place.batch_row, time, lag, place.state, place.frame);
    rows[i] = row == nullptr ? 0 : reinterpret_cast<uintptr_t>(row) + (time < lag ? 1 : 0);
  }
}

// The barriers of the two rings: of slots with columns, and of stages with weights.
struct Barriers {
  uint32_t first;

  __device__ __forceinline__ uint32_t slot_full(int i) const { return first + static_cast<uint32_t>(i * 8); }
  __device__ __forceinline__ uint32_t slot_empty(int i) const {
    return first + static_cast<uint32_t>((kMostSlots + i) * 8);
  }
  __device__ __forceinline__ uint32_t stage_full(int i) const {
    return first + static_cast<uint32_t>((2 * kMostSlots + i) * 8);
  }
  __device__ __forceinline__ uint32_t stage_empty(int i) const {
    return first + static_cast<uint32_t>((2 * kMostSlots + kMostStages + i) * 8);
  }

  // By one thread.
  __device__ __forceinline__ void Initialize(const WarpgroupArgs& t) const {
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

// By one thread: brings the weights of all of the block's tiles to the ring at `stages`.
template <int kStageBytes>
__device__ __forceinline__ void BringWeights(const WarpgroupArgs& t, const Barriers& barriers, uint32_t stages) {
  const char* const from = static_cast<const char*>(t.gemm.weights.warpgroup) +
                           static_cast<int64_t>(blockIdx.y) * t.stages_of_tile * kStageBytes;
  RingPlace stage;
  int of_tile = 0;
  const auto bring = [&] {
    ArriveAndExpect(barriers.stage_full(stage.index), kStageBytes);
    CopyBulk(stages + static_cast<uint32_t>(stage.index * kStageBytes),
             from + static_cast<int64_t>(of_tile) * kStageBytes, kStageBytes, barriers.stage_full(stage.index));
    stage.Next(t.stages);
    if (++of_tile == t.stages_of_tile) of_tile = 0;
  };
  const int tiles =
      (t.column_tiles - static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
  int left = tiles * t.stages_of_tile;
  // The first do not wait for the kernel before.
  for (int i = 0; i < t.stages && left > 0; ++i, --left) bring();
  WaitForPrevious();
  for (; left > 0; --left) {
    AwaitPhase(barriers.stage_empty(stage.index), stage.phase ^ 1);
    bring();
  }
}

// By the copy threads: brings the columns of all of the block's tiles to the ring at `slots`, a block of channels in a
// slot. `rows` are the staged columns' addresses, in shared memory.
template <int kTileColumns, int kPlanes>
__device__ __forceinline__ void BringColumns(const WarpgroupArgs& t, const Barriers& barriers, uint32_t slots,
                                             int slot_bytes, uintptr_t* rows) {
  const GemmArgs& a = t.gemm;
  const int thread = static_cast<int>(threadIdx.x) - (kThreads - kCopyThreads);
  WaitForPrevious();
  RingPlace slot;
  for (int tile = static_cast<int>(blockIdx.x); tile < t.column_tiles; tile += static_cast<int>(gridDim.x)) {
    SyncCopyThreads();  // nobody needs the rows of the tile before
    PlaceStaged(t, tile * kTileColumns, kTileColumns, thread, rows);
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

  // `first_row` is the warp's first column of the tile.
  __device__ __forceinline__ Products(const WarpgroupArgs& t, int first_column, int first_row, int lane) {
    plane_bytes = t.staged * kRowBytes;
    const int first_stream = Divide(first_column, t.gemm.x.by_rows);
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = first_row + i * 64 + h * 8 + lane / 4;
        const int stream = Divide(first_column + row, t.gemm.x.by_rows) - first_stream;
        at[i][h] = (row + (stream + 1) * t.halo) * kRowBytes + lane % 4 * 16;
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

  // The products of a k-step, smallest first, as MultiplyStep() has them.
  __device__ __forceinline__ void Multiply(const Operands& v, uint32_t weights, bool keep, Sums& sums) const {
    FenceMmas();
    if constexpr (kPlanes == 2) {
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        WarpgroupMma<kOutputs, __half>::Run(sums[i], v[i][0], MatrixDescriptor(weights + 64), keep ? 1 : 0);
      }
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        WarpgroupMma<kOutputs, __half>::Run(sums[i], v[i][1], MatrixDescriptor(weights), 1);
      }
    }
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      WarpgroupMma<kOutputs, __half>::Run(sums[i], v[i][0], MatrixDescriptor(weights), kPlanes == 2 || keep ? 1 : 0);
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

// Finishes a warp's sums of a tile. Of each 16 weight rows a lane has four, of two columns of each 64. A warp's go
// through shared memory, 96 of each of eight columns at a time, for two reasons: a short loop, since instructions
// written out for each sum would not stay in the SM's cache; and whole lines of global memory, which eight lanes get in
// four neighbouring fours each.
template <int kOutputs, int kRowTiles, End kEnd, typename Memory>
__device__ __forceinline__ void FinishTile(const GemmArgs& a, Memory& m, int first_tile, int first_column,
                                           int first_row, int warp, int lane,
                                           const float (&sums)[kRowTiles][kOutputs / 2]) {
  constexpr int kPiecesPerColumn = kOutputs / kPieceOutputs;
  constexpr int kPieces = kRowTiles * 2 * kPiecesPerColumn;
  constexpr int kTurns = kPieces * kPieceColumns / kTurnColumns;
  const auto piece_row = [&](int piece) {
    return first_row + piece / (2 * kPiecesPerColumn) * 64 + piece / kPiecesPerColumn % 2 * 8;
  };
  const auto row_of = [&](int turn) {
    return piece_row(turn / kTurnsOfPiece) + turn % kTurnsOfPiece * kTurnColumns + lane / 8;
  };
  const auto tile_of = [&](int turn) { return turn / kTurnsOfPiece % kPiecesPerColumn * kPieceTiles + lane % 8 / 4; };
  float4 residuals[kTogether];
  const auto load_residuals = [&](int turn) {
    if constexpr (kEnd == End::kPlain || kEnd == End::kResidual) {
#pragma unroll
      for (int n = 0; n < kTogether; ++n) {
        residuals[n] = ResidualAt(a, first_column + row_of(turn),
                                  (first_tile + tile_of(turn) + n * kTileStep) * kTileRows + lane % 4 * 4);
      }
    }
  };
  const auto park = [&](int piece) {
    __syncwarp();
#pragma unroll
    for (int n = 0; n < kPieceTiles; ++n) {
      float v[4] = {};
#pragma unroll
      for (int of = 0; of < kPieces; ++of) {
        const int i = of / (2 * kPiecesPerColumn);
        const int s = 8 * (of % kPiecesPerColumn * kPieceTiles + n) + of / kPiecesPerColumn % 2 * 2;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          if (piece == of) v[k] = sums[i][s + k / 2 * 4 + k % 2];
        }
      }
      m.parked[warp][lane / 4][4 * n + lane % 4] = {v[0], v[1], v[2], v[3]};
    }
    __syncwarp();
  };
  load_residuals(0);
#pragma unroll 1
  for (int turn = 0; turn < kTurns; ++turn) {
    if (turn % kTurnsOfPiece == 0) park(turn / kTurnsOfPiece);
    float4 before[kTogether];
#pragma unroll
    for (int n = 0; n < kTogether; ++n) before[n] = residuals[n];
    if (turn + 1 < kTurns) load_residuals(turn + 1);
    const int row = row_of(turn);
    const Column place = m.places[row];
    if (place.frame < 0) continue;
    FinishQuads<kEnd, kTogether, kTileStep>(
        a, first_tile, tile_of(turn), lane % 4 * 4, first_column + row, place, 1.0F, m.constants,
        [&](int n, int) { return before[n]; },
        [&](int n, int) {
          return m.parked[warp][turn % kTurnsOfPiece * kTurnColumns + lane / 8][lane % 8 + n * 4 * kTileStep];
        });
  }
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

// Blocks of kOutputs weight rows and 128 kRowTiles columns. kTotals: there may be more than one segment.
template <int kOutputs, int kRowTiles, int kPlanes, bool kTotals, End kEnd>
__global__ void __launch_bounds__(kThreads, 1) WarpgroupGemm(const __grid_constant__ WarpgroupArgs t) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int kTileColumns = TileColumns(kRowTiles);
  constexpr int kStageBytes = StageBytes(kOutputs);
  constexpr int kSums = kOutputs / 2;
  using Memory = Extras<kOutputs, kTileColumns>;
  using Operands = typename Products<kOutputs, kRowTiles, kPlanes>::Operands;
  extern __shared__ unsigned char raw[];
  const GemmArgs& a = t.gemm;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int slot_bytes = t.staged * (kRowBytes * kPlanes);

  const uint32_t stages = (SharedAddress(raw) + kOperandGroupBytes - 1) / kOperandGroupBytes * kOperandGroupBytes;
  const uint32_t slots = stages + static_cast<uint32_t>(t.stages * kStageBytes);
  unsigned char* const behind = raw + (slots - SharedAddress(raw)) + t.slots * slot_bytes;
  Memory& m = *reinterpret_cast<Memory*>(behind);
  const Barriers barriers = {SharedAddress(m.barriers)};
  const int first_tile = static_cast<int>(blockIdx.y) * (kOutputs / kTileRows);
  const int blocks_per_group = a.geometry.group_blocks;

  LetNextStart();
  if (threadIdx.x == 0) barriers.Initialize(t);
  PlaceConstants(a, first_tile, kOutputs / kTileRows, &m.constants);
  __syncthreads();

  if (warp >= kConsumers) {
    GiveUpRegisters<kProducerRegisters>();
    if (warp > kConsumers) {
      BringColumns<kTileColumns, kPlanes>(t, barriers, slots, slot_bytes,
                                          reinterpret_cast<uintptr_t*>(behind + sizeof(Memory)));
    } else if (lane == 0) {
      BringWeights<kStageBytes>(t, barriers, stages);
    } else {
      WaitForPrevious();
    }
    return;
  }

  TakeRegisters<kConsumerRegisters>();
  WaitForPrevious();
  const int first_row = warp / 4 * (64 * kRowTiles) + warp % 4 * 16;  // of the tile's columns, of the warp
  float sums[kRowTiles][kSums];
  float totals[kTotals ? kRowTiles : 1][kSums];
  Operands x[2];  // of a chunk's two k-steps
  RingPlace slot, stage;
  for (int tile = static_cast<int>(blockIdx.x); tile < t.column_tiles; tile += static_cast<int>(gridDim.x)) {
    const int first_column = tile * kTileColumns;
    __syncwarp();
    if (lane < 16) {
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        const int row = first_row + i * 64 + lane;
        m.places[row] = ColumnOf(a, first_column + row);
      }
    }
    const Products<kOutputs, kRowTiles, kPlanes> products(t, first_column, first_row, lane);
    int half = 0;          // of a stage with two chunks
    uint32_t to_free = 0;  // barrier of the stage whose products have been started; 0: none
    const auto free_stage = [&] {
      if (to_free != 0 && lane == 0) Arrive(to_free);
      to_free = 0;
    };

#pragma unroll 1
    for (int group = 0; group < a.geometry.groups; ++group) {
      bool first = true;
#pragma unroll 1
      for (int tap = 0; tap < a.geometry.taps; ++tap) {
        const uint32_t lag = static_cast<uint32_t>((a.geometry.taps - 1 - tap) * a.geometry.dilation * kRowBytes);
        RingPlace block = slot;
#pragma unroll 1
        for (int b = 0; b < blocks_per_group; ++b) {
          if (tap == 0) AwaitPhase(barriers.slot_full(block.index), block.phase);
          if (kPlanes == 2 || half == 0) AwaitPhase(barriers.stage_full(stage.index), stage.phase);
          const uint32_t from = slots + static_cast<uint32_t>(block.index * slot_bytes) - lag;
          const uint32_t weights = stages + static_cast<uint32_t>(stage.index * kStageBytes + half * 64);
          products.Load(from, 0, x[0]);
          products.Multiply(x[0], weights, !first, sums);
          if (!first) {
            AwaitMmas<1>();
            products.Keep(x[1]);
            free_stage();
          }
          products.Load(from, 1, x[1]);
          products.Multiply(x[1], weights + 32, true, sums);
          AwaitMmas<1>();
          products.Keep(x[0]);
          first = false;
          if (tap + 1 == a.geometry.taps && lane == 0) Arrive(barriers.slot_empty(block.index));
          block.Next(t.slots);
          if (kPlanes == 2 || half == 1) {
            to_free = barriers.stage_empty(stage.index);
            stage.Next(t.stages);
          }
          if constexpr (kPlanes == 1) half ^= 1;
        }
      }
      for (int b = 0; b < blocks_per_group; ++b) slot.Next(t.slots);
      AwaitMmas<0>();
      products.Keep(x[1]);
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) KeepInPlace(sums[i]);
      free_stage();
      if constexpr (kTotals) {
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
          for (int s = 0; s < kSums; ++s) totals[i][s] = group == 0 ? sums[i][s] : totals[i][s] + sums[i][s];
        }
      }
    }
    if (half == 1) {
      if (lane == 0) Arrive(barriers.stage_empty(stage.index));
      stage.Next(t.stages);
    }
    if constexpr (kTotals) {
      FinishTile<kOutputs, kRowTiles, kEnd>(a, m, first_tile, first_column, first_row, warp, lane, totals);
    } else {
      FinishTile<kOutputs, kRowTiles, kEnd>(a, m, first_tile, first_column, first_row, warp, lane, sums);
    }
  }
#endif
}

using Kernel = void (*)(WarpgroupArgs);

// Outputs, and 64s of columns, of a warpgroup's products.
struct Shape {
  int outputs = 0;
  int row_tiles = 0;
};

Shape ShapeOf(const GemmGeometry& geometry) {
  const int outputs = geometry.tiles * kTileRows;
  if (outputs % 192 == 0) return {192, 1};
  if (outputs % 96 == 0) return {96, geometry.segments == 1 ? 2 : 1};
  return {};
}

template <int kPlanes, End kEnd>
Kernel KernelFor(const Shape& shape) {
  if (shape.outputs == 192) return WarpgroupGemm<192, 1, kPlanes, true, kEnd>;
  return shape.row_tiles == 2 ? WarpgroupGemm<96, 2, kPlanes, false, kEnd> : WarpgroupGemm<96, 1, kPlanes, true, kEnd>;
}

template <int kPlanes>
Kernel KernelFor(const Shape& shape, End end) {
  switch (end) {
    case End::kOperand:
      return KernelFor<kPlanes, End::kOperand>(shape);
    case End::kResidual:
      return KernelFor<kPlanes, End::kResidual>(shape);
    case End::kTransposed:
      return KernelFor<kPlanes, End::kTransposed>(shape);
    case End::kPlain:
      break;
  }
  return KernelFor<kPlanes, End::kPlain>(shape);
}

Kernel KernelFor(const Shape& shape, int planes, End end) {
  return planes == 2 ? KernelFor<2>(shape, end) : KernelFor<1>(shape, end);
}

constexpr size_t ExtrasBytes(const Shape& shape) {
  return shape.outputs == 192   ? sizeof(Extras<192, 128>)
         : shape.row_tiles == 2 ? sizeof(Extras<96, 256>)
                                : sizeof(Extras<96, 128>);
}

size_t SharedBytes(const WarpgroupArgs& args, const Shape& shape, int planes) {
  return kOperandGroupBytes + static_cast<size_t>(args.stages) * StageBytes(shape.outputs) +
         static_cast<size_t>(args.slots) * static_cast<size_t>(args.staged) * kRowBytes * static_cast<size_t>(planes) +
         ExtrasBytes(shape) + static_cast<size_t>(args.staged) * sizeof(uintptr_t);
}

// Completes the arguments for a device; `stages` is 0 if it has not the memory.
WarpgroupArgs Plan(const GemmArgs& gemm, const Shape& shape, const DeviceTraits& device) {
  constexpr int kLeastStages = 2;
  WarpgroupArgs args;
  args.gemm = gemm;
  const GemmGeometry& geometry = gemm.geometry;
  const int planes = gemm.weights.planes;
  const int columns = TileColumns(shape.row_tiles);
  const int rows = gemm.x.rows;
  // Streams that a tile has a part of at most.
  const int streams = rows % columns == 0 ? 1 : columns % rows == 0 ? columns / rows : (columns - 2) / rows + 2;
  args.column_tiles = CeilDiv(geometry.columns, columns);
  args.stages_of_tile = CeilDiv(geometry.chunks, StageChunks(planes));
  args.halo = (geometry.taps - 1) * geometry.dilation;
  args.staged = columns + streams * args.halo;
  args.slots = geometry.group_blocks;
  args.stages = kLeastStages;
  const auto fits = [&] { return SharedBytes(args, shape, planes) <= device.shared_bytes; };
  if (!fits()) {
    args.stages = 0;
    return args;
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
  grow(&args.stages, kLeastStages + 1);
  grow(&args.slots, kMostSlots);
  grow(&args.stages, kMostStages);
  return args;
}

}  // namespace

int WarpgroupOutputs(const GemmGeometry& geometry) {
  return geometry.group_blocks <= kMostSlots && geometry.groups == geometry.segments ? ShapeOf(geometry).outputs : 0;
}

bool WarpgroupTakes(const GemmArgs& args, Planes x_planes, GemmTile* tile, const DeviceTraits& device) {
  if (!device.warpgroups || args.weights.warpgroup == nullptr) return false;
  if (x_planes != (args.weights.planes == 2 ? Planes::kTwoHalves : Planes::kHalf)) return false;
  if (!IsPlain(args.epilogue)) return false;
  const Shape shape = ShapeOf(args.geometry);
  if (shape.outputs == 0 || Plan(args, shape, device).stages == 0) return false;
  *tile = {GemmForm::kWarpgroup, TileColumns(shape.row_tiles), shape.outputs / kTileRows};
  return true;
}

bool CanRunWarpgroupGemms(int major) {
  cudaFuncAttributes attributes = {};
  return major == 9 &&
         Succeeds(
             cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(KernelFor({192, 1}, 2, End::kPlain)))) &&
         attributes.ptxVersion >= 90;  // see cuda/meson.build
}

cudaError_t PrepareWarpgroupGemms(const DeviceTraits& device) {
  for (const int planes : {1, 2}) {
    for (const Shape& shape : {Shape{192, 1}, Shape{96, 2}, Shape{96, 1}}) {
      for (const End end : {End::kPlain, End::kOperand, End::kResidual, End::kTransposed}) {
        const cudaError_t error = PrepareKernel(KernelFor(shape, planes, end), device.shared_bytes);
        if (error != cudaSuccess) return error;
      }
    }
  }
  return cudaSuccess;
}

cudaError_t LaunchWarpgroupGemm(const GemmArgs& args, const DeviceTraits& device, cudaStream_t stream) {
  const Shape shape = ShapeOf(args.geometry);
  const WarpgroupArgs plan = Plan(args, shape, device);
  const int across = args.geometry.tiles * kTileRows / shape.outputs;
  // As many blocks as run at once, as long for each of the weights.
  const int along = std::min(plan.column_tiles, std::max(1, device.processors / across));
  return LaunchChained(KernelFor(shape, args.weights.planes, EndOf(args.epilogue)),
                       dim3(static_cast<unsigned>(along), static_cast<unsigned>(across)), kThreads,
                       SharedBytes(plan, shape, args.weights.planes), plan, device, stream);
}

}  // namespace qtts::cuda::codec
