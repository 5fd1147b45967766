// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>

#include "codec/gemm.h"
#include "codec/warpgroup_parts.cuh"
#include "runtime/succeeds.h"

// Products of many columns by warpgroups.
namespace qtts::cuda::codec {
namespace {

struct WarpgroupArgs {
  GemmArgs gemm;  // as of one tap, where columns come anew for each
  WarpgroupPlan plan;
  int32_t stages_of_tile = 0;  // of weights
  int32_t packed_outputs = 0;  // weight rows that a stage lies in memory with: a block's, or twice as many
  int32_t tap_blocks = 0;      // channel blocks of a tap, where columns come anew for each; otherwise 0
};

// Returns true if there are kernels of this shape with End::kGeneral. The largest shape has none: its accumulators
// leave no registers.
constexpr bool TakesAnyEnd(int outputs, int tile_columns) { return outputs != 192 && tile_columns == TileColumns(1); }

// Shared memory behind the stages of weights and columns.
template <int kOutputs, int kTileColumns>
struct Extras {
  TileMemory<kTileColumns> tile;
  Constants<kOutputs> constants;
  alignas(16) float normalise[TakesAnyEnd(kOutputs, kTileColumns) ? kTileColumns : 1];  // of columns, see InverseRms()
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Does what BringColumns() does where columns are copied anew for each tap: a ring slot has a channel block of one
// tap's rows.
template <int kPlanes>
__device__ __forceinline__ void StreamColumns(const WarpgroupArgs& t, const Barriers& barriers, uint32_t slots,
                                              int slot_bytes, uintptr_t* rows) {
  constexpr int kColumns = TileColumns(1);
  constexpr int kUnits = kRowBytes / 16;  // of a row
  constexpr int kRowsAtOnce = kCopyThreads / kUnits;
  // Addresses are read together, for the sake of loads that do not wait for each other.
  constexpr int kTogether = 3;
  const GemmArgs& a = t.gemm;
  const int thread = static_cast<int>(threadIdx.x) - (kThreads - kCopyThreads);
  WaitForPrevious();
  RingPlace slot;
  for (int tile = static_cast<int>(blockIdx.x); tile < t.plan.column_tiles; tile += static_cast<int>(gridDim.x)) {
    SyncCopyThreads();  // nobody needs the rows of the tile before
#pragma unroll 1
    for (int column = thread; column < kColumns; column += kCopyThreads) {
      const Column c = ColumnOf(a, tile * kColumns + column);
#pragma unroll 1
      for (int tap = 0; tap < t.plan.taps; ++tap) {
        const int lag = (t.plan.taps - 1 - tap) * a.geometry.dilation;
        const __half* const row =
            c.frame < 0 ? nullptr : SourceRow<__half>(a.x, c.batch_row, c.time, lag, c.state, c.frame);
        rows[tap * kColumns + column] = row == nullptr ? 0 : reinterpret_cast<uintptr_t>(row) + (c.time < lag ? 1 : 0);
      }
    }
    SyncCopyThreads();
#pragma unroll 1
    for (int tap = 0; tap < t.plan.taps; ++tap) {
#pragma unroll 1
      for (int block = 0; block < t.tap_blocks; ++block) {
        AwaitPhase(barriers.slot_empty(slot.index), slot.phase ^ 1);
        const uint32_t to = slots + static_cast<uint32_t>(slot.index * slot_bytes + thread * 16);
        const int offset = block * kChannelBlock + thread % kUnits * 8;
#pragma unroll
        for (int first = 0; first < kColumns; first += kTogether * kRowsAtOnce) {
          uintptr_t row[kTogether];
#pragma unroll
          for (int i = 0; i < kTogether; ++i) {
            const int column = first + i * kRowsAtOnce + thread / kUnits;
            row[i] = rows[tap * kColumns + min(column, kColumns - 1)];
          }
#pragma unroll
          for (int i = 0; i < kTogether; ++i) {
            const int begin = first + i * kRowsAtOnce;
            if (begin + kRowsAtOnce > kColumns && thread / kUnits >= kColumns - begin) break;
            const bool there = row[i] != 0;
            const __half* const from = there ? reinterpret_cast<const __half*>(row[i] & ~uintptr_t{1}) + offset
                                             : static_cast<const __half*>(a.x.data);
            CopyAsync16(to + begin * kRowBytes, from, there);
            if constexpr (kPlanes == 2) {
              const int64_t plane = (row[i] & 1) != 0 ? a.x.history_plane : a.x.plane;
              CopyAsync16(to + (kColumns + begin) * kRowBytes, there ? from + plane : from, there);
            }
          }
        }
        ArriveWithCopies(barriers.slot_full(slot.index));
        slot.Next(t.plan.slots);
      }
    }
  }
}

// Computes InverseRms() of a warp's columns from `first_column` on.
__device__ __forceinline__ void NormaliseColumns(const GemmArgs& a, int first_column, int lane, float* to) {
  constexpr int kColumns = 16;
  constexpr int kTogether = 4;
  for (int n = 0; n < kColumns; n += kTogether) {
    float factors[kTogether];
    InverseRms(a, first_column + n, factors);
    if (lane == 0) *reinterpret_cast<float4*>(to + n) = {factors[0], factors[1], factors[2], factors[3]};
  }
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

// Blocks of kOutputs weight rows and 128 kRowTiles columns. kTotals: there may be more than one segment.
template <int kOutputs, int kRowTiles, int kPlanes, bool kTotals, End kEnd>
__global__ void __launch_bounds__(kThreads, 1) WarpgroupGemm(const __grid_constant__ WarpgroupArgs t) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int kTileColumns = TileColumns(kRowTiles);
  constexpr int kStageBytes = StageBytes(kOutputs);
  using Memory = Extras<kOutputs, kTileColumns>;
  extern __shared__ unsigned char raw[];
  const GemmArgs& a = t.gemm;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int slot_bytes = t.plan.staged * (kRowBytes * kPlanes);

  const uint32_t stages = (SharedAddress(raw) + kOperandGroupBytes - 1) / kOperandGroupBytes * kOperandGroupBytes;
  const uint32_t slots = stages + static_cast<uint32_t>(t.plan.stages * kStageBytes);
  unsigned char* const behind = raw + (slots - SharedAddress(raw)) + t.plan.slots * slot_bytes;
  Memory& m = *reinterpret_cast<Memory*>(behind);
  const Barriers barriers = {SharedAddress(m.tile.barriers)};
  const int first_tile = static_cast<int>(blockIdx.y) * (kOutputs / kTileRows);

  LetNextStart();
  if (threadIdx.x == 0) barriers.Initialize(t.plan);
  PlaceConstants(a, first_tile, kOutputs / kTileRows, &m.constants);
  __syncthreads();

  if (warp >= kConsumers) {
    GiveUpRegisters<kProducerRegisters>();
    if (warp > kConsumers) {
      auto* const rows = reinterpret_cast<uintptr_t*>(behind + sizeof(Memory));
      if (kRowTiles == 1 && t.tap_blocks != 0) {
        StreamColumns<kPlanes>(t, barriers, slots, slot_bytes, rows);
      } else {
        BringColumns<kTileColumns, kPlanes>(a, t.plan, barriers, slots, slot_bytes, rows);
      }
    } else if (lane == 0) {
      const int packed = static_cast<int>(blockIdx.y) * kOutputs / t.packed_outputs;
      const int packed_bytes = StageBytes(t.packed_outputs);
      const char* const from = static_cast<const char*>(a.weights.warpgroup) +
                               static_cast<int64_t>(packed) * t.stages_of_tile * packed_bytes +
                               StageBytes(static_cast<int>(blockIdx.y) * kOutputs - packed * t.packed_outputs);
      BringWeights<kStageBytes>(t.plan, barriers, stages, t.stages_of_tile,
                                [&](int i) { return from + static_cast<int64_t>(i) * packed_bytes; });
    } else {
      WaitForPrevious();
    }
    return;
  }

  TakeRegisters<kConsumerRegisters>();
  WaitForPrevious();
  const int first_row = FirstRow<kRowTiles>(warp);
  float sums[kRowTiles][kOutputs / 2];
  float totals[kTotals ? kRowTiles : 1][kOutputs / 2];
  RingPlaces at;
  for (int tile = static_cast<int>(blockIdx.x); tile < t.plan.column_tiles; tile += static_cast<int>(gridDim.x)) {
    const int first_column = tile * kTileColumns;
    PlaceTile<kRowTiles>(a, first_column, first_row, lane, m.tile.places);
    if constexpr (kEnd == End::kGeneral) {
      if (a.epilogue.rms_input != nullptr) {
        NormaliseColumns(a, first_column + first_row, lane, m.normalise + first_row);
      }
    }
    const Products<kOutputs, kRowTiles, kPlanes> products(a, t.plan, first_column, first_row, lane);
    MultiplyTile<kOutputs, kRowTiles, kPlanes, kTotals>(a, t.plan, barriers, slots, stages, slot_bytes, products, lane,
                                                        at, sums, totals);
    TileEnd<kOutputs, kRowTiles, kEnd, 2> end(a, first_tile, first_column, first_row, lane);
    if constexpr (kTotals) {
      end.Finish(a, m.tile, m.constants, warp, m.normalise, totals);
    } else {
      end.Finish(a, m.tile, m.constants, warp, m.normalise, sums);
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

Shape ShapeOf(const GemmTile& tile) { return {tile.tiles * kTileRows, tile.columns / TileColumns(1)}; }

template <int kPlanes, End kEnd>
Kernel KernelFor(const Shape& shape) {
  if (shape.outputs == 192) return WarpgroupGemm<192, 1, kPlanes, true, kEnd>;
  return shape.row_tiles == 2 ? WarpgroupGemm<96, 2, kPlanes, false, kEnd> : WarpgroupGemm<96, 1, kPlanes, true, kEnd>;
}

template <int kPlanes>
Kernel KernelFor(const Shape& shape, End end) {
  // Products before the decoder blocks: their epilogues all differ, and one kernel serves all.
  if (shape.outputs == 128) return WarpgroupGemm<128, 1, kPlanes, true, End::kGeneral>;
  if (shape.outputs == 64) return WarpgroupGemm<64, 1, kPlanes, true, End::kGeneral>;
  switch (end) {
    case End::kGeneral:
      return WarpgroupGemm<96, 1, kPlanes, true, End::kGeneral>;
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
         : shape.outputs == 128 ? sizeof(Extras<128, 128>)
         : shape.outputs == 64  ? sizeof(Extras<64, 128>)
         : shape.row_tiles == 2 ? sizeof(Extras<96, 256>)
                                : sizeof(Extras<96, 128>);
}

WarpgroupPlan Plan(const GemmArgs& gemm, const Shape& shape, const DeviceTraits& device) {
  return PlanWarpgroups(gemm, shape.outputs, shape.row_tiles, ExtrasBytes(shape), device);
}

}  // namespace

int WarpgroupOutputs(const GemmGeometry& geometry) {
  const int outputs = geometry.tiles * kTileRows;
  if (!StreamsColumns(geometry)) {
    if (geometry.group_blocks > kMaxGroupSlots) return 0;
    return outputs % 192 == 0 ? 192 : outputs % 96 == 0 ? 96 : 0;
  }
  if (geometry.groups != 1 || geometry.chunks % geometry.segments != 0) return 0;
  for (const int packed : {192, 128, 96, 64}) {
    if (outputs % packed == 0) return packed;
  }
  return 0;
}

bool WarpgroupTakes(const GemmArgs& args, Planes x_planes, const GemmTile& tile, const DeviceTraits& device) {
  if (!device.warpgroups || args.weights.warpgroup == nullptr) return false;
  if (x_planes != (args.weights.planes == 2 ? Planes::kTwoHalves : Planes::kHalf)) return false;
  const Shape shape = ShapeOf(tile);
  const bool streams = StreamsColumns(args.geometry);
  const bool plain = IsPlain(args.epilogue);
  if (!plain && (!streams || !TakesAnyEnd(shape.outputs, tile.columns))) return false;
  // With fewer columns weights are all that counts, and other kernels have more blocks to read them.
  if (streams && args.geometry.columns < TileColumns(1)) return false;
  const int packed = WarpgroupOutputs(args.geometry);
  const bool is_whole =
      shape.outputs == packed && shape.row_tiles == (packed == 96 && args.geometry.segments == 1 ? 2 : 1);
  // Half as many outputs, where twice as many blocks may find SMs.
  const bool is_half = streams && packed >= 128 && shape.outputs == packed / 2 && shape.row_tiles == 1;
  return (is_whole || is_half) && Plan(args, shape, device).stages != 0;
}

cudaError_t PrepareWarpgroupGemms(const DeviceTraits& device) {
  for (const int planes : {1, 2}) {
    for (const Shape& shape : {Shape{192, 1}, Shape{96, 2}, Shape{96, 1}, Shape{128, 1}, Shape{64, 1}}) {
      for (const End end : {End::kGeneral, End::kPlain, End::kOperand, End::kResidual, End::kTransposed}) {
        const cudaError_t error = PrepareKernel(KernelFor(shape, planes, end), device.shared_bytes);
        if (error != cudaSuccess) return error;
      }
    }
  }
  return cudaSuccess;
}

cudaError_t LaunchWarpgroupGemm(const GemmArgs& args, const GemmTile& tile, const DeviceTraits& device,
                                cudaStream_t stream) {
  const Shape shape = ShapeOf(tile);
  const int planes = args.weights.planes;
  WarpgroupArgs all;
  all.gemm = args;
  all.plan = Plan(args, shape, device);
  all.packed_outputs = WarpgroupOutputs(args.geometry);
  if (StreamsColumns(args.geometry)) {
    all.gemm.geometry = AsOneTap(args.geometry);
    all.tap_blocks = args.geometry.chunks / args.geometry.taps;
  }
  all.stages_of_tile = CeilDiv(args.geometry.chunks, StageChunks(planes));
  const int across = args.geometry.tiles * kTileRows / shape.outputs;
  // As many blocks as run at once, as long for each of the weights.
  const int along = std::min(all.plan.column_tiles, std::max(1, device.processors / across));
  return LaunchChained(KernelFor(shape, planes, EndOf(args.epilogue)),
                       dim3(static_cast<unsigned>(along), static_cast<unsigned>(across)), kThreads,
                       SharedBytes(all.plan, shape.outputs, planes, ExtrasBytes(shape)), all, device, stream);
}

}  // namespace qtts::cuda::codec
