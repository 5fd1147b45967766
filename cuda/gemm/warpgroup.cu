// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>

#include "gemm/gemm_device.cuh"
#include "gemm/rows.h"
#include "gemm/tile_ring.cuh"
#include "gemm/warpgroup.h"
#include "gemm/warpgroup_tiles.h"
#include "runtime/async_copy.cuh"
#include "runtime/barrier.cuh"
#include "runtime/cluster.cuh"
#include "runtime/device.h"
#include "runtime/warpgroup.cuh"

namespace qtts::cuda::gemm {
namespace {

using Blocks = WarpgroupTile::Blocks;

constexpr int kMinColumns = kShares * kStageColumns;  // shares of whole stages
// Rows that a warp brings into order at once, and floats between them: its lanes' accesses lie in different banks.
constexpr int kOrderRows = 32;
constexpr int kOrderStride = kWarpOutputs + 4;
// Stages of a block that has an SM to itself, and of one of two. kSplit needs room for sums besides.
constexpr int kMaxStages = 6;
constexpr int kSomeStages = 4;
constexpr int kAlign = kSwizzledGroupBytes;  // of stages

constexpr int kFillers = 128;  // threads that fill the ring
constexpr int ThreadsOf(int warpgroups) { return warpgroups * 128 + kFillers; }
constexpr int BlocksTogether(int warpgroups) { return warpgroups == 1 ? 2 : 1; }
constexpr int StagesOf(int warpgroups, int rows, Blocks blocks) {
  return StageBytes(warpgroups, rows) == StageBytes(2, 128) && blocks != Blocks::kSplit ? kMaxStages : kSomeStages;
}
// Sums that a block of a split tile gets: all eight shares of an eighth of the tile.
constexpr int ReceivedBytes(int warpgroups, int rows, Blocks blocks) {
  return blocks == Blocks::kSplit ? warpgroups * kGroupOutputs * rows * 4 : 0;
}
// Sums that are brought into order.
constexpr int OrderBytes(int warpgroups, Blocks blocks) {
  return blocks == Blocks::kSplit ? 0 : warpgroups * kGroupWarps * kOrderRows * kOrderStride * 4;
}
// Stages, one of the two above, the barriers.
constexpr int SharedBytes(int warpgroups, int rows, Blocks blocks) {
  const int stages = StagesOf(warpgroups, rows, blocks);
  return kAlign + stages * StageBytes(warpgroups, rows) + ReceivedBytes(warpgroups, rows, blocks) +
         OrderBytes(warpgroups, blocks) + 2 * 8 * stages + 8;
}
static_assert(SharedBytes(2, 128, Blocks::kAlone) <= 227 << 10);
static_assert(SharedBytes(2, 128, Blocks::kSplit) <= 227 << 10);

struct TileArguments {
  GemmArguments gemm;  // x in the order kSwizzled
  GemmKind kind;
  WeightUnits units;
  bool together;  // four outputs are stored as one access
  int row_tiles, tiles;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Finishes and stores four outputs of a row, in one access where `together`.
template <GemmKind kKind>
__device__ __forceinline__ void StoreFour(const GemmArguments& a, bool together, int64_t row, int output, float4 v) {
  constexpr bool kFloats = kKind == GemmKind::kNormStore || kKind == GemmKind::kAdd;
  float values[4] = {v.x, v.y, v.z, v.w};
  if (!together) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (output + i >= a.outputs) break;
      const float previous =
          kKind == GemmKind::kAdd ? LoadL2(static_cast<const float*>(a.y) + row * a.y_stride + output + i) : 0;
      Finish<kKind, __nv_bfloat16>(a, row, output + i, values[i], previous);
    }
    return;
  }
  if (output >= a.outputs) return;
  const int64_t at = row * a.y_stride + output;
  uint4 previous = {};
  if constexpr (kKind == GemmKind::kAdd)
    previous = LoadL2(reinterpret_cast<const uint4*>(static_cast<float*>(a.y) + at));
  const uint32_t before[4] = {previous.x, previous.y, previous.z, previous.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[i] = Finished<kKind, __nv_bfloat16>(a, output + i, values[i], __uint_as_float(before[i]));
  }
  if constexpr (kFloats) {
    *reinterpret_cast<float4*>(static_cast<float*>(a.y) + at) = {values[0], values[1], values[2], values[3]};
  } else {
    *reinterpret_cast<uint2*>(static_cast<__nv_bfloat16*>(a.y) + at) = {PackBf16(values[0], values[1]),
                                                                        PackBf16(values[2], values[3])};
  }
}

__device__ __forceinline__ float4 Times(float4 v, float factor) {
  return {__fmul_rn(v.x, factor), __fmul_rn(v.y, factor), __fmul_rn(v.z, factor), __fmul_rn(v.w, factor)};
}

// Finishes a warp's sums of 16 weight rows from `first_weight` and kOrderRows rows from `first_row`, which lie in
// `order` [row][kOrderStride].
template <GemmKind kKind>
__device__ __forceinline__ void StoreRows(const GemmArguments& a, bool together, int first_weight, int64_t first_row,
                                          int lane, const float* order) {
  constexpr int kFours = kKind == GemmKind::kNormGated ? 2 : 4;  // of a row
#pragma unroll 2
  for (int i = lane; i < kOrderRows * kFours; i += 32) {
    const int64_t row = first_row + i / kFours;
    if (row >= a.rows) break;
    const float4 v = *reinterpret_cast<const float4*>(order + i / kFours * kOrderStride + i % kFours * 4);
    const float factor = HasNorm(kKind) ? __ldcg(a.factors + row) : 1;
    if constexpr (kKind == GemmKind::kNormGated) {
      // A packed tile of 16 rows has eight gates, then their ups.
      const float4 gate = Times(v, factor);
      const float4 up =
          Times(*reinterpret_cast<const float4*>(order + i / kFours * kOrderStride + i % kFours * 4 + 8), factor);
      StoreFour<GemmKind::kStore>(a, together, row, first_weight / 2 + i % kFours * 4,
                                  {Silu<__nv_bfloat16>(gate.x) * up.x, Silu<__nv_bfloat16>(gate.y) * up.y,
                                   Silu<__nv_bfloat16>(gate.z) * up.z, Silu<__nv_bfloat16>(gate.w) * up.w});
    } else {
      StoreFour<kKind>(a, together, row, first_weight + i % kFours * 4, Times(v, factor));
    }
  }
}

// Brings the sums of kRows rows, lane by lane, into the order of rows and outputs, step by step, and finishes them.
template <int kRows>
__device__ __forceinline__ void StoreSums(const TileArguments& t, int first_weight, int64_t first_row, int lane,
                                          float* order, const float (&sums)[kRows / 2]) {
  constexpr int kPerStep = kOrderRows / 2;
  const GemmArguments& a = t.gemm;
#pragma unroll
  for (int step = 0; step < kRows / kOrderRows; ++step) {
    const int64_t row = first_row + step * kOrderRows;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kPerStep; ++i) {
      order[SumFragment::Column(lane, i) * kOrderStride + SumFragment::Row(lane, i)] = sums[step * kPerStep + i];
    }
    __syncwarp();
    switch (t.kind) {
      case GemmKind::kNormStore:
        StoreRows<GemmKind::kNormStore>(a, t.together, first_weight, row, lane, order);
        break;
      case GemmKind::kNormGated:
        StoreRows<GemmKind::kNormGated>(a, t.together, first_weight, row, lane, order);
        break;
      case GemmKind::kAdd:
        StoreRows<GemmKind::kAdd>(a, t.together, first_weight, row, lane, order);
        break;
      case GemmKind::kStore:
        StoreRows<GemmKind::kStore>(a, t.together, first_weight, row, lane, order);
        break;
      case GemmKind::kStoreSilu:
        StoreRows<GemmKind::kStoreSilu>(a, t.together, first_weight, row, lane, order);
        break;
    }
  }
}

// Compile-time sizes of a kernel's tiles: 64 kGroups weight rows and kRows activations.
template <int kGroupsOfTile, int kRowsOfTile, Blocks kTogether>
struct TileShape {
  static constexpr int kGroups = kGroupsOfTile;
  static constexpr int kRows = kRowsOfTile;
  static constexpr Blocks kBlocks = kTogether;
  static constexpr bool kSplit = kBlocks == Blocks::kSplit;
  static constexpr int kStages = StagesOf(kGroups, kRows, kBlocks);
  static constexpr int kStageSize = StageBytes(kGroups, kRows);
  static constexpr int kWeightBytes = kGroups * kGroupWarps * kStageWarpBytes;
  static constexpr int kConsumers = kGroups * kGroupWarps;  // warps
  static constexpr int kClusterBlocks = kSplit ? kShares : 1;
};

// A thread of the warps that fill the ring. Rows come by one bulk copy, weights by plain ones: the many small bulk
// copies that their packed units would take are slow to issue.
template <typename Shape>
class Filler {
 public:
  // `first_stage` of the columns is the first that the block multiplies.
  __device__ __forceinline__ Filler(const TileArguments& arguments, Ring* ring, int first_stage)
      : t(arguments),
        a(arguments.gemm),
        ring_(*ring),
        first_stage_(first_stage),
        thread_(static_cast<int>(threadIdx.x) - Shape::kConsumers * 32),
        row_groups_(static_cast<int>(PaddedRows(a.rows) / kSwizzledRows)),
        units_of_tile_(Shape::kGroups * t.units.per_group),
        to_next_unit_(UnitSource(t.units, 1, a.chunks, 0)),
        threads_of_unit_(t.units.bytes / 16),
        to_next_copy_(kFillers / threads_of_unit_ * to_next_unit_) {}

  // Brings `stages_of_tile` stages of each tile.
  __device__ __forceinline__ void Run(const TileRange& tiles, int stages_of_tile) {
    // Weights of the first stages do not wait for the rows.
    int ahead = 0;
    if (tiles.first < tiles.end) {
      ahead = min(Shape::kStages, stages_of_tile);
      GoTo(tiles.first);
#pragma unroll 1
      for (int i = 0; i < ahead; ++i) BringWeights(ring_.stages + i * Shape::kStageSize, ring_.full + i * 8);
    }
    WaitForPrevious();
    LetNextStart();
#pragma unroll 1
    for (int tile = tiles.first; tile < tiles.end; tile += tiles.step) {
      if (tile != tiles.first) GoTo(tile);
#pragma unroll 1
      for (int i = 0; i < stages_of_tile; ++i) {
        const uint32_t to = ring_.stages + static_cast<uint32_t>(ring_.index * Shape::kStageSize);
        if (ahead > 0) {
          --ahead;
        } else {
          AwaitPhase(ring_.empty_barrier(ring_.index), ring_.phase ^ 1);
          BringWeights(to, ring_.full_barrier());
        }
        BringRows(to, ring_.full_barrier());
        ring_.Next(Shape::kStages);
      }
    }
  }

 private:
  // Sets the sources of a tile's stages. All divisions are done here, since a stage has no time for them.
  __device__ __forceinline__ void GoTo(int tile) {
    const int of_tile = tile / t.row_tiles * units_of_tile_;
    const int units = min(units_of_tile_, t.units.count - of_tile);
    weights_ = static_cast<const char*>(a.weights) + UnitSource(t.units, of_tile, a.chunks, first_stage_);
    const int unit = thread_ / threads_of_unit_;
    const int units_of_copy = kFillers / threads_of_unit_;
    weights_ += unit * to_next_unit_ + thread_ % threads_of_unit_ * 16;
    copies_ = (units - unit + units_of_copy - 1) / units_of_copy;
    const int first_group = tile % t.row_tiles * (Shape::kRows / kSwizzledRows);
    row_bytes_ = max(0, min(Shape::kRows / kSwizzledRows, row_groups_ - first_group)) * kSwizzledGroupBytes;
    rows_ = static_cast<const char*>(a.x) +
            (static_cast<int64_t>(first_stage_) * row_groups_ + first_group) * kSwizzledGroupBytes;
  }

  __device__ __forceinline__ void BringWeights(uint32_t to, uint32_t barrier) {
    constexpr int kCopies = Shape::kWeightBytes / 16 / kFillers;  // of a thread, each stage
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      if (i < copies_) {
        CopyAsync16(to + static_cast<uint32_t>((thread_ + i * kFillers) * 16), weights_ + i * to_next_copy_);
      }
    }
    ArriveWithCopies(barrier);
    weights_ += t.units.bytes;
  }

  __device__ __forceinline__ void BringRows(uint32_t to, uint32_t barrier) {
    if (thread_ == 0) {
      ArriveAndExpect(barrier, row_bytes_);
      if (row_bytes_ != 0) CopyBulk(to + Shape::kWeightBytes, rows_, row_bytes_, barrier);
    }
    rows_ += static_cast<int64_t>(row_groups_) * kSwizzledGroupBytes;
  }

  const TileArguments& t;
  const GemmArguments& a;
  Ring& ring_;
  const int first_stage_, thread_, row_groups_, units_of_tile_;
  const int64_t to_next_unit_;
  const int threads_of_unit_;
  const int64_t to_next_copy_;
  const char *weights_, *rows_;  // of the next stage
  int copies_, row_bytes_;
};

// A warp of the warpgroups that multiply: 16 weight rows with all rows of the tile.
template <typename Shape>
class Multiplier {
 public:
  static constexpr int kSums = Shape::kRows / 2;  // of a lane

  __device__ __forceinline__ Multiplier(const TileArguments& arguments, Ring* ring)
      : t(arguments),
        ring_(*ring),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32) {}

  // Sums over one share of the columns. One group of products runs while the next one's operands are loaded.
  __device__ __forceinline__ void SumShare(int share_stages, float (&sums)[kSums]) {
    uint32_t even[2][4], odd[2][4];  // operands of a chunk's two k-steps
    int previous = 0;
#pragma unroll 1
    for (int i = 0; i < share_stages; ++i) {
      AwaitPhase(ring_.full_barrier(), ring_.phase);
      Load(0, even);
      Multiply(0, even, i != 0, sums);
      if (i != 0) {
        AwaitMmas<1>();
        Keep(odd);
        Release(previous);
      }
      Load(1, odd);
      Multiply(1, odd, true, sums);
      AwaitMmas<1>();
      Keep(even);
      previous = ring_.index;
      ring_.Next(Shape::kStages);
    }
    AwaitMmas<0>();
    Keep(odd);
    KeepInPlace(sums);
    Release(previous);
  }

 private:
  __device__ __forceinline__ void Load(int chunk, uint32_t (&to)[2][4]) const {
    const uint32_t from = ring_.stages +
                          static_cast<uint32_t>(ring_.index * Shape::kStageSize + warp_ * kStageWarpBytes) +
                          static_cast<uint32_t>(lane_ * 16);
    const uint4 low = LoadShared16(from + static_cast<uint32_t>(FragmentOffset(t.units, chunk, false)));
    const uint4 high = LoadShared16(from + static_cast<uint32_t>(FragmentOffset(t.units, chunk, true)));
    to[0][0] = low.x, to[0][1] = high.x, to[0][2] = low.y, to[0][3] = high.y;
    to[1][0] = low.z, to[1][1] = high.z, to[1][2] = low.w, to[1][3] = high.w;
  }

  __device__ __forceinline__ void Multiply(int chunk, const uint32_t (&weights)[2][4], bool keep,
                                           float (&sums)[kSums]) const {
    const uint32_t rows =
        ring_.stages + static_cast<uint32_t>(ring_.index * Shape::kStageSize + Shape::kWeightBytes + chunk * 64);
    FenceMmas();
    WarpgroupMma<Shape::kRows, __nv_bfloat16>::Run(sums, weights[0], MatrixDescriptor(rows), keep ? 1 : 0);
    WarpgroupMma<Shape::kRows, __nv_bfloat16>::Run(sums, weights[1], MatrixDescriptor(rows + 32), 1);
    CommitMmas();
  }

  static __device__ __forceinline__ void Keep(uint32_t (&operands)[2][4]) {
    KeepInPlace(operands[0]);
    KeepInPlace(operands[1]);
  }

  // Gives back a stage that the products have read.
  __device__ __forceinline__ void Release(int slot) const {
    if (lane_ == 0) Arrive(ring_.empty_barrier(slot));
  }

  const TileArguments& t;
  Ring& ring_;
  const int warp_, lane_;
};

// Sends a warp's sums of a split tile, lane by lane, to the blocks that finish them: block f % 8 gets fragment f from
// all blocks.
template <typename Shape>
__device__ __forceinline__ void SendSums(uint32_t received, uint32_t arrivals, int rank, int warp, int lane,
                                         const float (&sums)[Shape::kRows / 2]) {
#pragma unroll
  for (int j = 0; j < Shape::kRows / SumFragment::kColumns; ++j) {
    const int fragment = warp * (Shape::kRows / SumFragment::kColumns) + j;
    const int place = fragment / kShares * kShares + rank;
    SendFour(fragment % kShares, received + static_cast<uint32_t>(place * SumFragment::kBytes + lane * 16), arrivals,
             {sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]});
  }
}

// Adds the shares of this block's fragments of a split tile and finishes them. The tile begins with `first_weight` and
// `first_row`.
template <typename Shape>
__device__ __forceinline__ void FinishReceived(const GemmArguments& a, uint32_t received, int rank, int warp, int lane,
                                               int first_weight, int64_t first_row) {
  constexpr int kFragments = Shape::kConsumers * Shape::kRows / SumFragment::kColumns;
  static_assert(kFragments % kShares == 0);
#pragma unroll 1
  for (int n = warp; n < kFragments / kShares; n += Shape::kConsumers) {
    const int fragment = n * kShares + rank;
    float partial[4][kShares];
#pragma unroll
    for (int s = 0; s < kShares; ++s) {
      const uint4 v =
          LoadShared16(received + static_cast<uint32_t>((n * kShares + s) * SumFragment::kBytes + lane * 16));
      partial[0][s] = __uint_as_float(v.x), partial[1][s] = __uint_as_float(v.y);
      partial[2][s] = __uint_as_float(v.z), partial[3][s] = __uint_as_float(v.w);
    }
    const int weight = first_weight + fragment / (Shape::kRows / SumFragment::kColumns) * kWarpOutputs;
    const int64_t row = first_row + fragment % (Shape::kRows / SumFragment::kColumns) * 8;
    float totals[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) totals[i] = SumOfShares(partial[i], 1, 1);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t of = row + SumFragment::Column(lane, i);
      const int output = weight + SumFragment::Row(lane, i);
      if (of >= a.rows || output >= a.outputs) continue;
      const float before = LoadL2(static_cast<const float*>(a.y) + of * a.y_stride + output);
      Finish<GemmKind::kAdd, __nv_bfloat16>(a, of, output, totals[i], before);
    }
  }
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

// Tiles of 64 kGroups weight rows and kRows activations: kGroups warpgroups multiply, four warps more fill the ring.
template <int kGroups, int kRows, Blocks kBlocks>
__global__ void __launch_bounds__(ThreadsOf(kGroups), BlocksTogether(kGroups))
    WarpgroupKernel(const __grid_constant__ TileArguments t) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Shape = TileShape<kGroups, kRows, kBlocks>;
  extern __shared__ unsigned char raw[];
  const GemmArguments& a = t.gemm;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int rank = Shape::kSplit ? BlockOfCluster() : 0;

  // All blocks of the grid agree: nothing is under way in a block that ends here.
  if (a.live != nullptr && LoadL2(a.live) == 0) {
    WaitForPrevious();
    LetNextStart();
    return;
  }

  Ring ring;
  ring.stages = (SharedAddress(raw) + kAlign - 1) / kAlign * kAlign;
  const uint32_t received = ring.stages + Shape::kStages * Shape::kStageSize;
  auto* const order =
      reinterpret_cast<float*>(raw + (received - SharedAddress(raw))) + warp * kOrderRows * kOrderStride;
  ring.full = received + ReceivedBytes(kGroups, kRows, kBlocks) + OrderBytes(kGroups, kBlocks);
  ring.empty = ring.full + Shape::kStages * 8;
  const uint32_t arrivals = ring.empty + Shape::kStages * 8;
  if (threadIdx.x == 0) {
#pragma unroll 1
    for (int i = 0; i < Shape::kStages; ++i) {
      InitializeBarrier(ring.full + i * 8, 1 + kFillers);
      InitializeBarrier(ring.empty + i * 8, Shape::kConsumers);
    }
    InitializeBarrier(arrivals, 1);
    if constexpr (Shape::kSplit) ArriveAndExpect(arrivals, ReceivedBytes(kGroups, kRows, kBlocks));
    FenceBarriers();
  }
  __syncthreads();
  if constexpr (Shape::kSplit) {
    ArriveAtCluster();
    AwaitCluster();
  }

  const TileRange tiles = {static_cast<int>(blockIdx.x) / Shape::kClusterBlocks,
                           static_cast<int>(gridDim.x) / Shape::kClusterBlocks, t.tiles};
  const int share_stages = a.chunks / kStageChunks / kShares;
  if (warp >= Shape::kConsumers) {
    Filler<Shape> filler(t, &ring, rank * share_stages);
    filler.Run(tiles, (Shape::kSplit ? 1 : kShares) * share_stages);
    return;
  }

  WaitForPrevious();
  LetNextStart();
  Multiplier<Shape> multiplier(t, &ring);
  constexpr int kSums = Multiplier<Shape>::kSums;
  float sums[kSums];
#pragma unroll 1
  for (int tile = tiles.first; tile < tiles.end; tile += tiles.step) {
    const int first_weight = tile / t.row_tiles * (kGroups * kGroupOutputs);
    const int64_t first_row = static_cast<int64_t>(tile % t.row_tiles) * kRows;
    if constexpr (Shape::kSplit) {
      multiplier.SumShare(share_stages, sums);
      SendSums<Shape>(received, arrivals, rank, warp, lane, sums);
      AwaitPhase<true>(arrivals, 0);
      FinishReceived<Shape>(a, received, rank, warp, lane, first_weight, first_row);
    } else {
      float totals[kSums];
#pragma unroll
      for (int i = 0; i < kSums; ++i) totals[i] = 0;
#pragma unroll 1
      for (int share = 0; share < kShares; ++share) {
        multiplier.SumShare(share_stages, sums);
#pragma unroll
        for (int i = 0; i < kSums; ++i) totals[i] = __fadd_rn(totals[i], sums[i]);
      }
      StoreSums<kRows>(t, first_weight + warp * kWarpOutputs, first_row, lane, order, totals);
    }
  }
#endif
}

using Kernel = void (*)(TileArguments);

// Null: there is none.
Kernel KernelFor(const WarpgroupTile& tile) {
  const auto is = [&](int warpgroups, int rows, Blocks blocks) {
    return tile.warpgroups == warpgroups && tile.rows == rows && tile.blocks == blocks;
  };
  if (is(2, 128, Blocks::kAlone)) return WarpgroupKernel<2, 128, Blocks::kAlone>;
  if (is(2, 128, Blocks::kSplit)) return WarpgroupKernel<2, 128, Blocks::kSplit>;
  if (is(1, 64, Blocks::kAlone)) return WarpgroupKernel<1, 64, Blocks::kAlone>;
  return nullptr;
}

}  // namespace

bool CanRunWarpgroup(const WarpgroupTile& tile, GemmKind kind, int columns) {
  const Kernel kernel = KernelFor(tile);
  if (kernel == nullptr || columns % kMinColumns != 0) return false;
  if (tile.blocks == Blocks::kSplit && kind != GemmKind::kAdd) return false;
  const DeviceDescription* device = nullptr;
  return Succeeds(DescribeDevice(&device)) && device->CanRunWarpgroups() &&
         device->shared_per_block >= static_cast<size_t>(SharedBytes(tile.warpgroups, tile.rows, tile.blocks));
}

WarpgroupLaunch PlanWarpgroup(const WarpgroupTile& tile, GemmKind kind, int outputs, int64_t rows, int processors) {
  WarpgroupLaunch plan = {};
  const int64_t of_tile = int64_t{tile.warpgroups} * kGroupOutputs;
  plan.output_tiles = (WeightRows(kind, outputs) + of_tile - 1) / of_tile;
  plan.row_tiles = (rows + tile.rows - 1) / tile.rows;
  plan.stages = StagesOf(tile.warpgroups, tile.rows, tile.blocks);
  plan.shared_bytes = static_cast<size_t>(SharedBytes(tile.warpgroups, tile.rows, tile.blocks));
  plan.threads = ThreadsOf(tile.warpgroups);
  const int64_t tiles = plan.output_tiles * plan.row_tiles;
  // As many as run at once; the blocks of a split tile go on to no other.
  const int64_t at_once = int64_t{processors} * (plan.stages == kMaxStages ? 1 : 2);
  plan.blocks = static_cast<unsigned>(tile.blocks == Blocks::kSplit ? kShares * tiles : std::min(tiles, at_once));
  return plan;
}

void RunWarpgroup(const Launcher& launch, GemmKind kind, const WarpgroupTile& tile, GemmArguments a,
                  const NormedRows& scratch) {
  if (HasNorm(kind)) {
    NormRows(launch, a, scratch, RowOrder::kSwizzled);
    a.factors = scratch.factors;
  } else {
    ArrangeRows(launch, a, scratch);
  }
  a.x = scratch.x;
  const WarpgroupLaunch plan =
      PlanWarpgroup(tile, kind, a.outputs, a.rows, static_cast<int>(launch.numbers->products.blocks_at_once / 2));
  const bool together =
      a.y_stride % 4 == 0 && a.outputs % 4 == 0 && reinterpret_cast<uintptr_t>(a.y) % (4 * sizeof(float)) == 0;
  const TileArguments t = {a,
                           kind,
                           UnitsOf(kind, a.outputs),
                           together,
                           static_cast<int>(plan.row_tiles),
                           static_cast<int>(plan.row_tiles * plan.output_tiles)};
  const unsigned cluster = tile.blocks == Blocks::kSplit ? kShares : 1;
  launch.InClusters(cluster, KernelFor(tile), dim3(plan.blocks), plan.threads, plan.shared_bytes, t);
}

}  // namespace qtts::cuda::gemm
