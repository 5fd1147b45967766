// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>

#include "codec/gemm.h"
#include "codec/warpgroup_parts.cuh"
#include "runtime/succeeds.h"

// Products of many columns by warpgroups.
namespace qtts::cuda::codec {
namespace {

struct WarpgroupArgs {
  GemmArgs gemm;
  WarpgroupPlan plan;
  int32_t stages_of_tile = 0;  // of weights
};

// What lies in shared memory behind the weights and the columns.
template <int kOutputs, int kTileColumns>
struct Extras {
  TileMemory<kTileColumns> tile;
  Constants<kOutputs> constants;
};

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
      BringColumns<kTileColumns, kPlanes>(a, t.plan, barriers, slots, slot_bytes,
                                          reinterpret_cast<uintptr_t*>(behind + sizeof(Memory)));
    } else if (lane == 0) {
      const char* const from = static_cast<const char*>(a.weights.warpgroup) +
                               static_cast<int64_t>(blockIdx.y) * t.stages_of_tile * kStageBytes;
      BringWeights<kStageBytes>(t.plan, barriers, stages, t.stages_of_tile,
                                [&](int i) { return from + static_cast<int64_t>(i) * kStageBytes; });
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
    const Products<kOutputs, kRowTiles, kPlanes> products(a, t.plan, first_column, first_row, lane);
    MultiplyTile<kOutputs, kRowTiles, kPlanes, kTotals>(a, t.plan, barriers, slots, stages, slot_bytes, products, lane,
                                                        at, sums, totals);
    if constexpr (kTotals) {
      FinishTile<kOutputs, kRowTiles, kEnd, 2>(a, m.tile, m.constants, first_tile, 0, first_column, first_row, warp,
                                               lane, totals);
    } else {
      FinishTile<kOutputs, kRowTiles, kEnd, 2>(a, m.tile, m.constants, first_tile, 0, first_column, first_row, warp,
                                               lane, sums);
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

WarpgroupPlan Plan(const GemmArgs& gemm, const Shape& shape, const DeviceTraits& device) {
  return PlanWarpgroups(gemm, shape.outputs, shape.row_tiles, ExtrasBytes(shape), device);
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
  const int planes = args.weights.planes;
  WarpgroupArgs all;
  all.gemm = args;
  all.plan = Plan(args, shape, device);
  all.stages_of_tile = CeilDiv(args.geometry.chunks, StageChunks(planes));
  const int across = args.geometry.tiles * kTileRows / shape.outputs;
  // As many blocks as run at once, as long for each of the weights.
  const int along = std::min(all.plan.column_tiles, std::max(1, device.processors / across));
  return LaunchChained(KernelFor(shape, planes, EndOf(args.epilogue)),
                       dim3(static_cast<unsigned>(along), static_cast<unsigned>(across)), kThreads,
                       SharedBytes(all.plan, shape.outputs, planes, ExtrasBytes(shape)), all, device, stream);
}

}  // namespace qtts::cuda::codec
