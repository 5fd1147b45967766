// SPDX-License-Identifier: LGPL-2.1-or-later
#include "codec/gemm.h"
#include "codec/staged_parts.cuh"
#include "codec/staged_plan.h"

// A residual unit of many columns and few channels for devices without warpgroups' instruction. A block has all
// channels of its columns, so the second product takes its input from shared memory, where the first one's epilogue
// puts it. It is never written to global memory.
namespace qtts::cuda::codec {
namespace {

constexpr int kChannels = 96;
constexpr int kTiles = kChannels / kTileRows;
constexpr int kBlocks = kChannels / kChannelBlock;
constexpr int kColumns = 96;

template <int kPlanes>
using UnitShape = StagedShape<3, 2, 6, kColumns, kPlanes>;

// Shared memory of the second product, in place of the rings: all its weights, and its input.
// [plane][column][kChannels]; eight lanes that load at a time have two columns, which lie in different banks.
constexpr int kHiddenRowBytes = kChannels * 2;
template <int kPlanes>
constexpr int kSecondBytes = kBlocks* UnitShape<kPlanes>::kStageBytes;
template <int kPlanes>
constexpr int kHiddenBytes = kPlanes* kColumns* kHiddenRowBytes;
// The second product's weights are copied once the epilogue is through with this memory.
static_assert(ExchangeBytes<UnitShape<1>>() <= kSecondBytes<1>);
static_assert(ExchangeBytes<UnitShape<2>>() <= kSecondBytes<2>);

struct UnitArgs {
  StagedArgs first;
  GemmArgs second;
};

// Makes the second product's input from a warp's accumulators of the first one: biases, SnakeBeta, rounding.
template <typename Shape>
__device__ __forceinline__ void MakeHidden(const WarpSums<Shape>& sums, const Constants<kChannels>& constants,
                                           int warp_tile, int warp_column, int lane, float* exchange, char* hidden) {
  constexpr int kOfTile = SumFragment::kColumns;
#pragma unroll
  for (int j = 0; j < Shape::kWarpColumnTiles; j += Shape::kTogether) {
    __syncwarp();
#pragma unroll
    for (int c = 0; c < Shape::kTogether; ++c) {
      StoreSums(sums, j + c, lane, exchange + c * kOfTile * Shape::kSumStride);
    }
    __syncwarp();
#pragma unroll
    for (int n = 0; n < Shape::kWarpTiles; ++n) {
      const int channel = (warp_tile + n) * kTileRows + lane % 4 * 4;
      const float4 scale = Load4(constants.weight_scale + channel);
      const float4 bias = Load4(constants.bias + channel);
      const float4 snake_a = Load4(constants.snake_a + channel);
      const float4 snake_inverse_b = Load4(constants.snake_inverse_b + channel);
#pragma unroll
      for (int c = 0; c < Shape::kTogether; ++c) {
        const float4 sum =
            Load4(exchange + (c * kOfTile + lane / 4) * Shape::kSumStride + n * kTileRows + lane % 4 * 4);
        const float4 v = Snake<Shape::kPlanes == 1>(Plus(Times(sum, scale), bias), snake_a, snake_inverse_b);
        char* const to = hidden + (warp_column + (j + c) * kOfTile + lane / 4) * kHiddenRowBytes + channel * 2;
        const uint2 high = HighHalves(v);
        *reinterpret_cast<uint2*>(to) = high;
        if constexpr (Shape::kPlanes == 2) {
          *reinterpret_cast<uint2*>(to + kColumns * kHiddenRowBytes) = LowHalves(v, high);
        }
      }
    }
  }
}

template <int kPlanes, End kEnd>
__global__ void __launch_bounds__(UnitShape<kPlanes>::kThreads, StagedBlocksOfSm(kColumns, kTiles))
    StagedUnit(const __grid_constant__ UnitArgs t) {
  using Shape = UnitShape<kPlanes>;
  // As in StagedGemm; then the second product's weights and input, StagedMemory.
  extern __shared__ __align__(16) char block_memory[];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int warp_tile = Shape::WarpTile(warp);
  const int warp_column = Shape::WarpColumn(warp);
  const int first_column = static_cast<int>(blockIdx.x) * kColumns;
  auto& m = *reinterpret_cast<StagedMemory<Shape>*>(block_memory + t.first.plan.ring_bytes);
  float* const exchange = WarpExchange<Shape>(block_memory, warp);
  char* const hidden = block_memory + kSecondBytes<kPlanes>;

  {
    WarpSums<Shape> first;
    const auto meanwhile = [&] {
      if constexpr (kEnd == End::kResidual) PrefetchResiduals<Shape>(t.second, 0, first_column, thread);
    };
    MultiplyStaged<Shape>(t.first, 0, first_column, thread, block_memory, m, meanwhile, first);
    MakeHidden(first, m.constants, warp_tile, warp_column, lane, exchange, hidden);
  }
  __syncthreads();
  StageCopies<Shape> stages(t.second, 0, thread, SharedAddress(block_memory), kBlocks);
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) stages.Start();
  PlaceConstants(t.second, 0, kTiles, &m.constants);
  AwaitAllCopies();
  __syncthreads();

  WarpSums<Shape> second;
  int at[Shape::kWarpColumnTiles];
#pragma unroll
  for (int j = 0; j < Shape::kWarpColumnTiles; ++j) {
    at[j] = (warp_column + j * SumFragment::kColumns + UnitFragment::Row(lane)) * kHiddenRowBytes +
            UnitFragment::Column(lane) * 2;
  }
  const char* const stage_lane = block_memory + warp_tile * Shape::kTileBytes + lane * 16;
#pragma unroll 1
  for (int block = 0; block < kBlocks; ++block) {
    second.AddChunk(hidden + block * kRowBytes, at, kColumns * kHiddenRowBytes,
                    stage_lane + block * Shape::kStageBytes);
  }
  second.EndSegment(true);
  __syncthreads();
  const WarpEnd<Shape, kEnd> end(t.second, 0, warp_tile, first_column, warp_column, lane);
  end.Finish(second, m, exchange);
}

using Kernel = void (*)(UnitArgs);

Kernel KernelFor(int planes, End end) {
  if (planes == 2) return end == End::kResidual ? StagedUnit<2, End::kResidual> : StagedUnit<2, End::kPlain>;
  return end == End::kResidual ? StagedUnit<1, End::kResidual> : StagedUnit<1, End::kPlain>;
}

constexpr GemmTile kTile = {GemmForm::kStaged, kColumns, kTiles};

template <int kPlanes>
constexpr StagedSizes kSizes = {UnitShape<kPlanes>::kThreads, sizeof(StagedMemory<UnitShape<kPlanes>>),
                                kSecondBytes<kPlanes> + kHiddenBytes<kPlanes>};

const StagedSizes& SizesOf(int planes) { return planes == 2 ? kSizes<2> : kSizes<1>; }

}  // namespace

bool StagedUnitHasKernel(const GemmGeometry& first, const GemmGeometry& second) {
  return first.tiles == kTiles && second.tiles == kTiles && second.taps == 1 && second.chunks == kBlocks &&
         second.segments == 1;
}

bool StagedUnitTakes(const GemmArgs& first, const GemmArgs& second, const UnitWeights& weights, GemmTile* tile,
                     const DeviceTraits& device) {
  if (weights.first == nullptr || !IsPlain(second.epilogue) || EndOf(first.epilogue) != End::kOperand) return false;
  const End end = EndOf(second.epilogue);
  if (end != End::kResidual && end != End::kPlain) return false;
  *tile = kTile;
  return PlanStaged(first, kTile, SizesOf(first.weights.planes), device).stages != 0;
}

cudaError_t PrepareStagedUnits(const DeviceTraits& device) {
  for (const int planes : {1, 2}) {
    for (const End end : {End::kPlain, End::kResidual}) {
      const cudaError_t error = PrepareKernel(KernelFor(planes, end), device.shared_bytes);
      if (error != cudaSuccess) return error;
    }
  }
  return cudaSuccess;
}

cudaError_t LaunchStagedUnit(const GemmArgs& first, const GemmArgs& second, const UnitWeights& weights,
                             const DeviceTraits& device, cudaStream_t stream) {
  const StagedSizes& sizes = SizesOf(first.weights.planes);
  UnitArgs args;
  args.first.gemm = first;
  args.first.gemm.weights.data = weights.first;
  args.first.plan = PlanStaged(first, kTile, sizes, device);
  args.second = second;
  args.second.weights.data = weights.second;
  return LaunchChained(KernelFor(first.weights.planes, EndOf(second.epilogue)),
                       dim3(static_cast<unsigned>(CeilDiv(first.geometry.columns, kColumns))), sizes.threads,
                       StagedBytes(args.first.plan, sizes), args, device, stream);
}

}  // namespace qtts::cuda::codec
