// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CODEC_STAGED_PARTS_CUH_
#define QTTS_CUDA_CODEC_STAGED_PARTS_CUH_

#include "codec/gemm.h"
#include "codec/half_math.cuh"
#include "codec/staged_columns.cuh"
#include "codec/staged_plan.h"
#include "runtime/async_copy.cuh"
#include "runtime/fragment.h"

// Products of many columns by the matrix instruction of a warp, for devices without warpgroups' (`wgmma`). A block
// multiplies whole tiles of 96, 128 or 192 columns. Its threads copy operands into two rings in shared memory: stages,
// each with the weights of a chunk, and slots, each with a channel block of the tile's columns, which all taps of a
// convolution read, moved by their lag: a column is copied once for all taps.
//
// A warp has 32 or 48 columns and 48 or 64 weight rows: the more, the fewer bytes of shared memory it loads for a
// matrix instruction, and its accumulators take most of its registers. Both operands lie in shared memory as the lanes
// load them, 16 bytes each (UnitFragment), so neither needs ldmatrix or a swizzle.
namespace qtts::cuda::codec {

struct StagedArgs {
  GemmArgs gemm;
  StagedPlan plan;
  Divisor by_across;  // blocks that share a tile of columns
};

// Compile-time sizes of a block: kWarpRows by kColumns / kWarpColumns warps.
template <int kWarpTilesOf, int kWarpRowsOf, int kWarpColumnTilesOf, int kColumnsOf, int kPlanesOf>
struct StagedShape {
  static constexpr int kWarpTiles = kWarpTilesOf, kWarpRows = kWarpRowsOf, kPlanes = kPlanesOf;
  static constexpr int kColumns = kColumnsOf;
  static constexpr bool kHasEveryEnd = kWarpTiles == 4;
  static constexpr int kWarpColumnTiles = kWarpColumnTilesOf;
  static constexpr int kWarpColumns = kWarpColumnTiles * SumFragment::kColumns;
  static constexpr int kTiles = kWarpTiles * kWarpRows;
  static constexpr int kThreads = kWarpRows * kColumns / kWarpColumns * 32;
  static_assert(kColumns % kWarpColumns == 0);
  static constexpr int kUnits = kTileRows * kChannelBlock / 8;  // 16 bytes each, of a weight tile's chunk, a plane
  static constexpr int kTileBytes = kPlanes * kUnits * 16;
  static constexpr int kStageBytes = StagedStageBytes(kTiles, kPlanes);
  static_assert(kStageBytes == kTiles * kTileBytes);
  // Returns the first weight tile of a warp, in the block's, and the first column.
  static __device__ __forceinline__ int WarpTile(int warp) { return warp % kWarpRows * kWarpTiles; }
  static __device__ __forceinline__ int WarpColumn(int warp) { return warp / kWarpRows * kWarpColumns; }
  // The epilogue takes two column tiles of a warp at a time through shared memory.
  static constexpr int kTogether = 2;
  static constexpr int kSumStride = kWarpTiles * kTileRows + 4;  // floats of a column: spreads the lanes over all banks
};

// Shared memory behind the rings. The columns' addresses follow.
template <typename Shape>
struct StagedMemory {
  Constants<Shape::kTiles * kTileRows> constants;
  Column places[Shape::kColumns];
  float column_scale[Shape::kHasEveryEnd ? Shape::kColumns : 1];  // see ScaleColumns()
};

template <typename Shape>
constexpr size_t ExchangeBytes() {
  return sizeof(float) * Shape::kThreads / 32 * Shape::kTogether * SumFragment::kColumns * Shape::kSumStride;
}
// Returns a warp's part of the memory through which it takes its sums.
template <typename Shape>
__device__ __forceinline__ float* WarpExchange(char* block_memory, int warp) {
  return reinterpret_cast<float*>(block_memory) + warp * (Shape::kTogether * SumFragment::kColumns * Shape::kSumStride);
}

// A thread's copies of the weights, chunk by chunk, into the ring of stages.
template <typename Shape>
class StageCopies {
 public:
  __device__ __forceinline__ StageCopies(const GemmArgs& a, int first_tile, int thread, uint32_t stages, int count)
      : stages_(stages + static_cast<uint32_t>(thread) * 16),
        end_(static_cast<uint32_t>(count) * Shape::kStageBytes),
        thread_(thread) {
    const int64_t tile_units = static_cast<int64_t>(a.geometry.chunks) * kChunkUnits;
    next_ = static_cast<const uint4*>(a.weights.data) + (first_tile + thread / kChunkUnits) * tile_units +
            thread % kChunkUnits;
    step_ = kTilesAtOnce * tile_units;
  }

  __device__ __forceinline__ void Start() {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      if ((i + 1) * Shape::kThreads <= kStageUnits || thread_ < kStageUnits - i * Shape::kThreads) {
        CopyAsync16(stages_ + to_ + static_cast<uint32_t>(i * Shape::kThreads * 16), next_ + i * step_);
      }
    }
    next_ += kChunkUnits;
    to_ = to_ + Shape::kStageBytes == end_ ? 0 : to_ + Shape::kStageBytes;
  }

 private:
  static constexpr int kChunkUnits = Shape::kPlanes * Shape::kUnits;  // of a tile
  static constexpr int kStageUnits = Shape::kTiles * kChunkUnits;
  static constexpr int kCopies = (kStageUnits + Shape::kThreads - 1) / Shape::kThreads;
  static constexpr int kTilesAtOnce = Shape::kThreads / kChunkUnits;
  static_assert(Shape::kThreads % kChunkUnits == 0);

  const uint32_t stages_;  // of the thread
  const uint32_t end_;
  const int thread_;
  const uint4* next_;
  int64_t step_;  // between the tiles that a thread copies
  uint32_t to_ = 0;
};

// Starts the copy of one unit of a row of each plane, 16 bytes; `row` is an entry of PlaceStaged(). The planes lie
// `plane_bytes` apart in shared memory. Zeros where there is no row.
template <int kPlanes>
__device__ __forceinline__ void CopyUnit(const Source& x, uintptr_t row, int offset, uint32_t to, int plane_bytes) {
  const bool there = row != 0;
  const __half* const from =
      there ? reinterpret_cast<const __half*>(row & ~uintptr_t{1}) + offset : static_cast<const __half*>(x.data);
  CopyAsync16(to, from, there);
  if constexpr (kPlanes == 2) {
    const int64_t plane = (row & 1) != 0 ? x.history_plane : x.plane;
    CopyAsync16(to + static_cast<uint32_t>(plane_bytes), there ? from + plane : from, there);
  }
}

// A thread's copies of the columns into the ring of slots: a channel block for its first chunk, or a chunk's rows of
// its tap.
template <typename Shape>
class SlotCopies {
 public:
  __device__ __forceinline__ SlotCopies(const StagedArgs& arguments, const uintptr_t* rows, int thread, uint32_t slots)
      : t(arguments), rows_(rows), thread_(thread), slots_(slots + static_cast<uint32_t>(thread) * 16) {}

  // Starts what the next chunk needs and no chunk before it has brought.
  __device__ __forceinline__ void Start() {
    if (tap_ == 0 || t.plan.streams != 0) CopyBlock();
    if (++block_ < t.gemm.geometry.group_blocks) return;
    block_ = 0;
    if (++tap_ < t.gemm.geometry.taps) return;
    tap_ = 0;
    first_block_ += t.gemm.geometry.group_blocks;
  }

 private:
  static constexpr int kRowsAtOnce = Shape::kThreads / (kRowBytes / 16);

  __device__ __forceinline__ void CopyBlock() {
    const uintptr_t* const rows = rows_ + (t.plan.streams != 0 ? tap_ * Shape::kColumns : 0);
    const int offset = (first_block_ + block_) * kChannelBlock + thread_ % 4 * 8;
    uint32_t to = slots_ + static_cast<uint32_t>(slot_ * t.plan.slot_bytes);
#pragma unroll 4
    for (int i = thread_ / 4; i < t.plan.staged; i += kRowsAtOnce) {
      CopyUnit<Shape::kPlanes>(t.gemm.x, rows[i], offset, to, t.plan.staged * kRowBytes);
      to += kRowsAtOnce * kRowBytes;
    }
    if (++slot_ == t.plan.slots) slot_ = 0;
  }

  const StagedArgs& t;
  const uintptr_t* const rows_;
  const int thread_;
  const uint32_t slots_;  // of the thread
  int tap_ = 0;
  int block_ = 0;        // of the group
  int first_block_ = 0;  // of the group, among all
  int slot_ = 0;
};

// A warp's accumulators: those of the current segment, and the total of those before it.
template <typename Shape>
struct WarpSums {
  float total[Shape::kWarpTiles][Shape::kWarpColumnTiles][4] = {};
  float sum[Shape::kWarpTiles][Shape::kWarpColumnTiles][4] = {};

  // Multiplies a chunk. `slot` and `stage` are its operands; `at` has the lane's part of each column tile.
  __device__ __forceinline__ void AddChunk(const char* slot, const int (&at)[Shape::kWarpColumnTiles], int plane_bytes,
                                           const char* stage) {
    uint4 x[Shape::kWarpColumnTiles][Shape::kPlanes];
#pragma unroll
    for (int j = 0; j < Shape::kWarpColumnTiles; ++j) {
#pragma unroll
      for (int p = 0; p < Shape::kPlanes; ++p) {
        x[j][p] = *reinterpret_cast<const uint4*>(slot + at[j] + p * plane_bytes);
      }
    }
#pragma unroll
    for (int step = 0; step < 2; ++step) {
#pragma unroll
      for (int i = 0; i < Shape::kWarpTiles; ++i) {
        uint4 w[1][Shape::kPlanes];
#pragma unroll
        for (int p = 0; p < Shape::kPlanes; ++p) {
          w[0][p] = *reinterpret_cast<const uint4*>(stage + i * Shape::kTileBytes + p * (Shape::kUnits * 16) +
                                                    step * (Shape::kUnits * 8));
        }
        MultiplyStep<1, Shape::kWarpColumnTiles, Shape::kPlanes>(
            reinterpret_cast<float(&)[1][Shape::kWarpColumnTiles][4]>(sum[i]), w, x, step);
      }
    }
  }
  __device__ __forceinline__ void EndSegment(bool first) {
#pragma unroll
    for (int i = 0; i < Shape::kWarpTiles; ++i) {
#pragma unroll
      for (int j = 0; j < Shape::kWarpColumnTiles; ++j) {
#pragma unroll
        for (int s = 0; s < 4; ++s) {
          total[i][j][s] = first ? sum[i][j][s] : total[i][j][s] + sum[i][j][s];
          sum[i][j][s] = 0;
        }
      }
    }
  }
};

// Waits until at most the last `left` groups of the calling thread's copies are in flight.
__device__ __forceinline__ void AwaitCopiesBut(int left) {
  if (left == 0) {
    AwaitCopies<0>();
  } else if (left == 1) {
    AwaitCopies<1>();
  } else {
    AwaitCopies<kMaxStagedStages - 2>();
  }
}

// Fills the addresses of the tile's columns, and their places.
template <typename Shape>
__device__ __forceinline__ void PlaceTile(const StagedArgs& t, int first_column, int thread, Column* places,
                                          uintptr_t* rows) {
  if (t.plan.streams != 0) {
    PlaceRows<Shape::kColumns>(t.gemm, first_column, places, rows);
    return;
  }
  PlaceColumns(t.gemm, first_column, Shape::kColumns, places);
  PlaceStaged<Shape::kThreads>(t.gemm, t.plan.halo, t.plan.staged, first_column, Shape::kColumns, thread, rows);
}

// Prefetches the residuals of the block's tile into L2.
template <typename Shape>
__device__ __forceinline__ void PrefetchResiduals(const GemmArgs& a, int first_tile, int first_column, int thread) {
  constexpr int kLine = 32;  // floats
  constexpr int kLines = (Shape::kTiles * kTileRows + kLine - 1) / kLine;
  for (int i = thread; i < Shape::kColumns * kLines; i += Shape::kThreads) {
    const int column = first_column + i / kLines;
    if (column >= a.geometry.columns) break;
    PrefetchL2(a.epilogue.residual + static_cast<int64_t>(column) * a.geometry.tiles * kTileRows +
               first_tile * kTileRows + i % kLines * kLine);
  }
}

// Multiplies the block's tile from weight tile `first_tile` and column `first_column` on. Called by all threads, of
// which `thread` is one; each calls `meanwhile` once its first copies are on their way. Begins with what does not
// depend on the kernel before (device.cuh) and then waits for it. Afterwards the block's shared memory up to
// plan.ring_bytes is free, and `m` has the constants and the columns' places.
template <typename Shape, typename Meanwhile>
__device__ __forceinline__ void MultiplyStaged(const StagedArgs& t, int first_tile, int first_column, int thread,
                                               char* block_memory, StagedMemory<Shape>& m, const Meanwhile& meanwhile,
                                               WarpSums<Shape>& sums) {
  const GemmArgs& a = t.gemm;
  const int lane = thread % 32;
  const int warp_tile = Shape::WarpTile(thread / 32);
  const int warp_column = Shape::WarpColumn(thread / 32);
  auto* const rows = reinterpret_cast<uintptr_t*>(block_memory + t.plan.ring_bytes + sizeof(StagedMemory<Shape>));
  const int slots_begin = t.plan.stages * Shape::kStageBytes;
  const int ahead = t.plan.stages - 1;  // chunks whose copies have been started

  StageCopies<Shape> stages(a, first_tile, thread, SharedAddress(block_memory), t.plan.stages);
  LetNextStart();
  for (int i = 0; i < ahead; ++i) {
    if (i < a.geometry.chunks) stages.Start();
  }
  PlaceTile<Shape>(t, first_column, thread, m.places, rows);
  PlaceConstants(a, first_tile, Shape::kTiles, &m.constants);
  __syncthreads();
  SlotCopies<Shape> slots(t, rows, thread, SharedAddress(block_memory) + static_cast<uint32_t>(slots_begin));
  WaitForPrevious();

  // The first group of copies holds the weights of all first stages too.
  for (int i = 0; i < ahead; ++i) {
    if (i < a.geometry.chunks) slots.Start();
    CommitCopies();
  }
  meanwhile();
  const int first_stream = Divide(first_column, a.x.by_rows);
  int at[Shape::kWarpColumnTiles];
#pragma unroll
  for (int j = 0; j < Shape::kWarpColumnTiles; ++j) {
    at[j] = StagedOffset(a, t.plan.halo, first_column, first_stream,
                         warp_column + j * SumFragment::kColumns + UnitFragment::Row(lane), lane);
  }

  const char* const stage_lane = block_memory + warp_tile * Shape::kTileBytes + lane * 16;
  int stage = 0;
  int first_slot = 0;                    // of the group
  int left = a.geometry.chunks - ahead;  // chunks whose copies have not been started
#pragma unroll 1
  for (int group = 0; group < t.plan.groups; ++group) {
#pragma unroll 1
    for (int tap = 0; tap < t.plan.taps; ++tap) {
      const int lag_bytes = (t.plan.taps - 1 - tap) * t.plan.lag_bytes;
      int slot = first_slot;
#pragma unroll 1
      for (int block = 0; block < t.plan.group_blocks; ++block) {
        AwaitCopiesBut(ahead - 1);
        __syncthreads();
        if (left > 0) {
          stages.Start();
          slots.Start();
          --left;
        }
        CommitCopies();
        sums.AddChunk(block_memory + slots_begin + slot * t.plan.slot_bytes - lag_bytes, at, t.plan.staged * kRowBytes,
                      stage_lane + stage * Shape::kStageBytes);
        if (++stage == t.plan.stages) stage = 0;
        if (++slot == t.plan.slots) slot = 0;
      }
      if (tap + 1 == t.plan.taps) first_slot = slot;
    }
    sums.EndSegment(group == 0);
  }
  AwaitAllCopies();
  __syncthreads();
}

// Stores a warp's sums of a column tile, [column][kSumStride].
template <typename Shape>
__device__ __forceinline__ void StoreSums(const WarpSums<Shape>& sums, int column_tile, int lane, float* to) {
  constexpr int kStride = Shape::kSumStride;
  float* const at = to + SumFragment::Column(lane, 0) * kStride + SumFragment::Row(lane, 0);
#pragma unroll
  for (int n = 0; n < Shape::kWarpTiles; ++n) {
    const float(&v)[4] = sums.total[n][column_tile];
    at[n * kTileRows] = v[0];
    at[n * kTileRows + kStride] = v[1];
    at[n * kTileRows + 8] = v[2];
    at[n * kTileRows + kStride + 8] = v[3];
  }
}

// The epilogue of a warp's accumulators, two column tiles at a time, through its part `exchange` of shared memory: a
// lane then has four neighbouring outputs of two columns.
template <typename Shape, End kEnd>
class WarpEnd {
 public:
  __device__ __forceinline__ WarpEnd(const GemmArgs& arguments, int first_tile, int warp_tile, int first_column,
                                     int warp_column, int lane)
      : a(arguments),
        first_tile_(first_tile),
        warp_tile_(warp_tile),
        first_column_(first_column),
        row_(warp_column + lane / 4),
        lane_(lane) {}

  __device__ __forceinline__ void Finish(const WarpSums<Shape>& sums, const StagedMemory<Shape>& m,
                                         float* exchange) const {
    Residuals next;
    LoadResiduals(0, next);
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      Residuals residuals;
#pragma unroll
      for (int c = 0; c < kTogether; ++c) {
#pragma unroll
        for (int n = 0; n < kTiles; ++n) residuals[c][n] = next[c][n];
      }
      if (turn + 1 < kTurns) LoadResiduals(turn + 1, next);
      __syncwarp();
#pragma unroll
      for (int c = 0; c < kTogether; ++c)
        StoreSums(sums, turn * kTogether + c, lane_, exchange + c * kColumns * kStride);
      __syncwarp();
      int columns[kTogether];
      Column places[kTogether];
      float factors[kTogether];
      bool any = false;
#pragma unroll
      for (int c = 0; c < kTogether; ++c) {
        const int row = Row(turn, c);
        columns[c] = first_column_ + row;
        places[c] = m.places[row];
        factors[c] = kEnd == End::kGeneral && a.epilogue.rms_input != nullptr ? m.column_scale[row] : 1.0F;
        any = any || places[c].frame >= 0;
      }
      // A tile's second half are values of the first half's gates.
      if (kEnd == End::kGeneral && a.epilogue.activation == Activation::kSwiGlu && lane_ % 4 >= 2) any = false;
      if (!any) continue;
      FinishQuads<kEnd, kTiles>(
          a, first_tile_, warp_tile_, lane_ % 4 * 4, columns, places, factors, m.constants,
          [&](int c, int n, int) { return residuals[c][n]; },
          [&](int c, int n, int of_tile) {
            return *reinterpret_cast<const float4*>(exchange + (c * kColumns + lane_ / 4) * kStride + n * kTileRows +
                                                    of_tile);
          });
    }
  }

 private:
  static constexpr int kTiles = Shape::kWarpTiles;
  static constexpr int kColumns = SumFragment::kColumns;
  static constexpr int kTogether = Shape::kTogether;
  static constexpr int kTurns = Shape::kWarpColumnTiles / kTogether;
  static constexpr int kStride = Shape::kSumStride;
  using Residuals = float4[kTogether][kTiles];

  // Returns the c-th of the lane's columns of a turn, among the tile's.
  __device__ __forceinline__ int Row(int turn, int c) const { return row_ + (turn * kTogether + c) * kColumns; }

  __device__ __forceinline__ void LoadResiduals(int turn, Residuals& to) const {
    if constexpr (kEnd == End::kGeneral || kEnd == End::kPlain || kEnd == End::kResidual) {
#pragma unroll
      for (int c = 0; c < kTogether; ++c) {
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          to[c][n] =
              ResidualAt(a, first_column_ + Row(turn, c), (first_tile_ + warp_tile_ + n) * kTileRows + lane_ % 4 * 4);
        }
      }
    }
  }

  const GemmArgs& a;
  const int first_tile_, warp_tile_, first_column_;
  const int row_;  // the lane's first column, among the tile's
  const int lane_;
};

}  // namespace qtts::cuda::codec

#endif  // QTTS_CUDA_CODEC_STAGED_PARTS_CUH_
