// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>

#include "codec/gemm.h"
#include "codec/warpgroup_parts.cuh"
#include "runtime/succeeds.h"

// A residual unit of many columns and few channels by warpgroups. The second product takes its input from the registers
// with the first one's accumulators: PackWarpgroup() orders the first one's weight rows so that a lane's accumulators
// are the channels that the second one's instructions read from it.
namespace qtts::cuda::codec {
namespace {

// One width: more sums would leave no room for the second product's, and fewer are nobody's.
constexpr int kChannels = 96;
constexpr int kRowTiles = 2;
constexpr int kTileColumns = TileColumns(kRowTiles);
constexpr int kStageBytes = StageBytes(kChannels);
constexpr int kTiles = kChannels / kTileRows;
constexpr int kBlocks = kChannels / kChannelBlock;

// Stages of the second product's weights, which are all in shared memory at a time.
template <int kPlanes>
constexpr int kSecondStages = (kBlocks + StageChunks(kPlanes) - 1) / StageChunks(kPlanes);

struct UnitArgs {
  GemmArgs first, second;
  UnitWeights weights;
  WarpgroupPlan plan;
  int32_t stages_of_first = 0;  // of weights, a tile's
};

// Shared memory behind the stages of weights and columns.
struct Extras {
  TileMemory<kTileColumns> tile;
  Constants<kChannels> first, second;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

using Sums = float[1][kChannels / 2];  // of 64 columns

// Makes the second product's operand from a block of channels of the first one's accumulators: biases, SnakeBeta,
// rounding.
template <int kPlanes>
__device__ __forceinline__ void MakeHidden(const Constants<kChannels>& constants, int block, int lane,
                                           const float (&sums)[kChannels / 2], uint32_t (&to)[2][1][kPlanes][4]) {
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    const int channel = block * kChannelBlock + UnitFragment::Column(lane) + step * 4;
    const float4 scale = Load4(constants.weight_scale + channel);
    const float4 bias = Load4(constants.bias + channel);
    const float4 snake_a = Load4(constants.snake_a + channel);
    const float4 snake_inverse_b = Load4(constants.snake_inverse_b + channel);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float* const v = &sums[8 * (2 * block + step) + 2 * h];
      const float4 hidden =
          Snake<kPlanes == 1>(Plus(Times({v[0], v[1], v[4], v[5]}, scale), bias), snake_a, snake_inverse_b);
      const uint2 high = HighHalves(hidden);
      to[step][0][0][h] = high.x;
      to[step][0][0][2 + h] = high.y;
      if constexpr (kPlanes == 2) {
        const uint2 low = LowHalves(hidden, high);
        to[step][0][1][h] = low.x;
        to[step][0][1][2 + h] = low.y;
      }
    }
  }
}

// Computes the second product's accumulators from the first one's, with the weights from `stage` of the ring on.
template <int kPlanes>
__device__ __forceinline__ void MultiplyHidden(const WarpgroupPlan& t, uint32_t stages, RingPlace stage,
                                               const Constants<kChannels>& constants, int lane,
                                               const float (&from)[kChannels / 2], Sums& sums) {
  using Unit = Products<kChannels, 1, kPlanes>;
  typename Unit::Operands hidden[2];  // of a chunk's two k-steps
  Clear(sums);
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    const int half = block % StageChunks(kPlanes);
    MakeHidden<kPlanes>(constants, block, lane, from, hidden);
    const uint32_t weights = stages + static_cast<uint32_t>(stage.index * kStageBytes + half * 64);
    Unit::Multiply(hidden[0], weights, sums);
    Unit::Multiply(hidden[1], weights + 32, sums);
    AwaitMmas<0>();
    Unit::Keep(hidden[0]);
    Unit::Keep(hidden[1]);
    KeepInPlace(sums[0]);
    if (half + 1 == StageChunks(kPlanes)) stage.Next(t.stages);
  }
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

template <int kPlanes, End kEnd>
__global__ void __launch_bounds__(kThreads, 1) WarpgroupUnit(const __grid_constant__ UnitArgs t) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char raw[];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int slot_bytes = t.plan.staged * (kRowBytes * kPlanes);

  const uint32_t stages = (SharedAddress(raw) + kOperandGroupBytes - 1) / kOperandGroupBytes * kOperandGroupBytes;
  const uint32_t slots = stages + static_cast<uint32_t>(t.plan.stages * kStageBytes);
  unsigned char* const behind = raw + (slots - SharedAddress(raw)) + t.plan.slots * slot_bytes;
  Extras& m = *reinterpret_cast<Extras*>(behind);
  const Barriers barriers = {SharedAddress(m.tile.barriers)};

  LetNextStart();
  if (threadIdx.x == 0) barriers.Initialize(t.plan);
  PlaceConstants(t.first, 0, kTiles, &m.first);
  PlaceConstants(t.second, 0, kTiles, &m.second);
  __syncthreads();

  if (warp >= kConsumers) {
    GiveUpRegisters<kProducerRegisters>();
    if (warp > kConsumers) {
      BringColumns<kTileColumns, kPlanes>(t.first, t.plan, barriers, slots, slot_bytes,
                                          reinterpret_cast<uintptr_t*>(behind + sizeof(Extras)));
    } else if (lane == 0) {
      const auto* const first = static_cast<const char*>(t.weights.first);
      const auto* const second = static_cast<const char*>(t.weights.second);
      BringWeights<kStageBytes>(t.plan, barriers, stages, t.stages_of_first + kSecondStages<kPlanes>, [&](int i) {
        return i < t.stages_of_first ? first + static_cast<int64_t>(i) * kStageBytes
                                     : second + static_cast<int64_t>(i - t.stages_of_first) * kStageBytes;
      });
    } else {
      WaitForPrevious();
    }
    return;
  }

  TakeRegisters<kConsumerRegisters>();
  WaitForPrevious();
  const int first_row = FirstRow<kRowTiles>(warp);
  RingPlaces at;
  for (int tile = static_cast<int>(blockIdx.x); tile < t.plan.column_tiles; tile += static_cast<int>(gridDim.x)) {
    const int first_column = tile * kTileColumns;
    PlaceTile<kRowTiles>(t.first, first_column, first_row, lane, m.tile.places);
    const Products<kChannels, kRowTiles, kPlanes> products(t.first, t.plan, first_column, first_row, lane);
    float first[kRowTiles][kChannels / 2];
    float none[1][kChannels / 2];
    MultiplyTile<kChannels, kRowTiles, kPlanes, false>(t.first, t.plan, barriers, slots, stages, slot_bytes, products,
                                                       lane, at, first, none);
    // Both halves of the columns take the same weights, one after the other: there are registers for one.
    RingPlace stage = at.stage;
    for (int i = 0; i < kSecondStages<kPlanes>; ++i) {
      AwaitPhase(barriers.stage_full(stage.index), stage.phase);
      stage.Next(t.plan.stages);
    }
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      TileEnd<kChannels, 1, kEnd, 1> end(t.second, 0, first_column, first_row + i * 64, lane);
      Sums second;
      MultiplyHidden<kPlanes>(t.plan, stages, at.stage, m.first, lane, first[i], second);
      if (i + 1 == kRowTiles) {
        for (int n = 0; n < kSecondStages<kPlanes>; ++n) {
          if (lane == 0) Arrive(barriers.stage_empty(at.stage.index));
          at.stage.Next(t.plan.stages);
        }
      }
      end.Finish(t.second, m.tile, m.second, warp, nullptr, second);
    }
  }
#endif
}

using Kernel = void (*)(UnitArgs);

Kernel KernelFor(int planes, End end) {
  if (planes == 2) return end == End::kResidual ? WarpgroupUnit<2, End::kResidual> : WarpgroupUnit<2, End::kPlain>;
  return end == End::kResidual ? WarpgroupUnit<1, End::kResidual> : WarpgroupUnit<1, End::kPlain>;
}

WarpgroupPlan Plan(const GemmArgs& first, const DeviceTraits& device) {
  return PlanWarpgroups(first, kChannels, kRowTiles, sizeof(Extras), device);
}

}  // namespace

bool WarpgroupUnitHasKernel(const GemmGeometry& first, const GemmGeometry& second) {
  const auto fits = [](const GemmGeometry& geometry) {
    return geometry.tiles == kTiles && geometry.segments == 1 && geometry.group_blocks == kBlocks;
  };
  return second.taps == 1 && fits(first) && fits(second);
}

WarpgroupOrder UnitOrder(bool first) { return {kChannels, first ? RowOrder::kEights : RowOrder::kFours}; }

bool WarpgroupUnitTakes(const GemmArgs& first, const GemmArgs& second, const UnitWeights& weights, GemmTile* tile,
                        const DeviceTraits& device) {
  if (weights.first == nullptr || !IsPlain(second.epilogue) || EndOf(first.epilogue) != End::kOperand) return false;
  const End end = EndOf(second.epilogue);
  if (end != End::kResidual && end != End::kPlain) return false;
  *tile = {GemmForm::kWarpgroup, kTileColumns, kTiles};
  return Plan(first, device).stages >= (first.weights.planes == 2 ? kSecondStages<2> : kSecondStages<1>);
}

cudaError_t PrepareWarpgroupUnits(const DeviceTraits& device) {
  for (const int planes : {1, 2}) {
    for (const End end : {End::kPlain, End::kResidual}) {
      const cudaError_t error = PrepareKernel(KernelFor(planes, end), device.shared_bytes);
      if (error != cudaSuccess) return error;
    }
  }
  return cudaSuccess;
}

cudaError_t LaunchWarpgroupUnit(const GemmArgs& first, const GemmArgs& second, const UnitWeights& weights,
                                const DeviceTraits& device, cudaStream_t stream) {
  const int planes = first.weights.planes;
  UnitArgs args;
  args.first = first;
  args.second = second;
  args.weights = weights;
  args.plan = Plan(first, device);
  args.stages_of_first = CeilDiv(first.geometry.chunks, StageChunks(planes));
  return LaunchChained(KernelFor(planes, EndOf(second.epilogue)),
                       dim3(static_cast<unsigned>(std::min(args.plan.column_tiles, device.processors))), kThreads,
                       SharedBytes(args.plan, kChannels, planes, sizeof(Extras)), args, device, stream);
}

}  // namespace qtts::cuda::codec
