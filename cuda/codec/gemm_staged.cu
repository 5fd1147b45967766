// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>
#include <iterator>

#include "codec/gemm.h"
#include "codec/staged_parts.cuh"
#include "codec/staged_plan.h"

// Products of many columns for devices without warpgroups' instruction: the kernel, and its thread blocks.
namespace qtts::cuda::codec {
namespace {

template <typename Shape, End kEnd>
__global__ void __launch_bounds__(Shape::kThreads, StagedBlocksOfSm(Shape::kColumns, Shape::kTiles))
    StagedGemm(const __grid_constant__ StagedArgs t) {
  // Stages [tile][plane][step][lane][8], slots [plane][column][kChannelBlock], StagedMemory, the columns' addresses.
  extern __shared__ __align__(16) char block_memory[];
  const GemmArgs& a = t.gemm;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int column_tile = Divide(static_cast<int>(blockIdx.x), t.by_across);
  const int first_column = column_tile * Shape::kColumns;
  const int first_tile = (static_cast<int>(blockIdx.x) - column_tile * t.by_across.value) * Shape::kTiles;
  auto& m = *reinterpret_cast<StagedMemory<Shape>*>(block_memory + t.plan.ring_bytes);

  WarpSums<Shape> sums;
  const auto meanwhile = [&] {
    if constexpr (kEnd == End::kResidual) PrefetchResiduals<Shape>(a, first_tile, first_column, thread);
    if constexpr (kEnd == End::kGeneral) ScaleColumns(a, first_column, Shape::kColumns, m.column_scale);
  };
  MultiplyStaged<Shape>(t, first_tile, first_column, thread, block_memory, m, meanwhile, sums);
  const WarpEnd<Shape, kEnd> end(a, first_tile, Shape::WarpTile(warp), first_column, Shape::WarpColumn(warp),
                                 thread % 32);
  end.Finish(sums, m, WarpExchange<Shape>(block_memory, warp));
}

using Kernel = void (*)(StagedArgs);

template <typename Shape>
Kernel KernelFor(End end) {
  if constexpr (Shape::kHasEveryEnd) {
    // Products before the decoder blocks: their epilogues all differ, and one kernel serves all.
    return StagedGemm<Shape, End::kGeneral>;
  } else {
    switch (end) {
      case End::kOperand:
        return StagedGemm<Shape, End::kOperand>;
      case End::kResidual:
        return StagedGemm<Shape, End::kResidual>;
      case End::kTransposed:
        return StagedGemm<Shape, End::kTransposed>;
      case End::kPlain:
      case End::kGeneral:
        break;
    }
    return StagedGemm<Shape, End::kPlain>;
  }
}

// Calls `use`(a StagedShape) with the one of kStagedTiles, and returns what it does.
template <int kPlanes, typename Use>
auto WithShape(const GemmTile& tile, const Use& use) {
  switch (tile.columns) {
    case 96:
      return use(StagedShape<3, 2, 6, 96, kPlanes>());
    case 192:
      return tile.tiles == 6 ? use(StagedShape<3, 2, 6, 192, kPlanes>()) : use(StagedShape<3, 1, 6, 192, kPlanes>());
    default:
      return tile.tiles == 8   ? use(StagedShape<4, 2, 4, 128, kPlanes>())
             : tile.tiles == 6 ? use(StagedShape<3, 2, 4, 128, kPlanes>())
             : tile.tiles == 4 ? use(StagedShape<4, 1, 4, 128, kPlanes>())
                               : use(StagedShape<3, 1, 4, 128, kPlanes>());
  }
}
template <typename Use>
auto WithShape(const GemmTile& tile, int planes, const Use& use) {
  return planes == 2 ? WithShape<2>(tile, use) : WithShape<1>(tile, use);
}

Kernel KernelFor(const GemmTile& tile, int planes, End end) {
  return WithShape(tile, planes, [&](auto shape) { return KernelFor<decltype(shape)>(end); });
}

StagedSizes SizesOf(const GemmTile& tile, int planes) {
  return WithShape(tile, planes, [](auto shape) {
    using Shape = decltype(shape);
    return StagedSizes{Shape::kThreads, sizeof(StagedMemory<Shape>), ExchangeBytes<Shape>()};
  });
}

StagedPlan Plan(const GemmArgs& args, const GemmTile& tile, const DeviceTraits& device) {
  return PlanStaged(args, tile, SizesOf(tile, args.weights.planes), device);
}

}  // namespace

bool StagedTakes(const GemmArgs& args, Planes x_planes, const GemmTile& tile, const DeviceTraits& device) {
  const auto is_tile = [&](const GemmTile& known) {
    return known.columns == tile.columns && known.tiles == tile.tiles;
  };
  if (device.warpgroups || std::none_of(std::begin(kStagedTiles), std::end(kStagedTiles), is_tile)) return false;
  if (x_planes != (args.weights.planes == 2 ? Planes::kTwoHalves : Planes::kHalf)) return false;
  if (tile.tiles % 3 == 0 && !IsPlain(args.epilogue)) return false;
  return args.geometry.tiles % tile.tiles == 0 && Plan(args, tile, device).stages != 0;
}

bool StagedShares(const GemmArgs& args, const GemmTile& tile, const DeviceTraits& device) {
  const StagedPlan plan = Plan(args, tile, device);
  return plan.stages != 0 && plan.streams == 0;
}

cudaError_t PrepareStagedGemms(const DeviceTraits& device) {
  for (const int planes : {1, 2}) {
    for (const GemmTile& tile : kStagedTiles) {
      for (const End end : {End::kPlain, End::kOperand, End::kResidual, End::kTransposed}) {
        const cudaError_t error = PrepareKernel(KernelFor(tile, planes, end), device.shared_bytes);
        if (error != cudaSuccess) return error;
      }
    }
  }
  return cudaSuccess;
}

cudaError_t LaunchStagedGemm(const GemmArgs& args, const GemmTile& tile, const DeviceTraits& device,
                             cudaStream_t stream) {
  const int planes = args.weights.planes;
  const StagedSizes sizes = SizesOf(tile, planes);
  StagedArgs all;
  all.gemm = args;
  all.plan = Plan(args, tile, device);
  const int across = args.geometry.tiles / tile.tiles;
  all.by_across = Divisor(across);
  const int blocks = across * CeilDiv(args.geometry.columns, tile.columns);
  return LaunchChained(KernelFor(tile, planes, EndOf(args.epilogue)), dim3(static_cast<unsigned>(blocks)),
                       sizes.threads, StagedBytes(all.plan, sizes), all, device, stream);
}

}  // namespace qtts::cuda::codec
