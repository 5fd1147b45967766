// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>

#include "gemm/gemm_device.cuh"
#include "gemm/rows.h"
#include "gemm/swizzled.h"
#include "gemm/tiles.h"
#include "runtime/async_copy.cuh"
#include "runtime/barrier.cuh"
#include "runtime/device.h"
#include "runtime/fragment.h"
#include "runtime/warpgroup.cuh"

namespace qtts::cuda::gemm {
namespace {

constexpr int kGroupRows = 64;  // of a warpgroup's instruction
constexpr int kGroupWarps = 4;
constexpr int kWarpRows = kGroupRows / kGroupWarps;
constexpr int kStageColumns = kSwizzledColumns;
constexpr int kStageChunks = kStageColumns / kChunk;
constexpr int kStageLineBytes = kStageColumns * 2;  // of a row or a weight row
constexpr int kAlign = kSwizzledGroupBytes;
constexpr int kStages = 6;
constexpr int ThreadsOf(int size) { return size / kGroupRows * 128 + 32; }
// Small tiles share an SM with another block, be it the next product's.
constexpr int BlocksOfSm(int size) { return size == 128 ? 1 : 2; }
constexpr int SharedBytesOf(int size) { return kAlign + kStages * (2 * size * kStageLineBytes + 2 * 8); }

struct TileArguments {
  GemmArguments gemm;  // x in the order kSwizzled
  int row_groups;      // of 8 rows, of x
  int weight_groups;   // of 8 weight rows
  int row_tiles, tiles;
};

// Compile-time sizes of a kernel's tiles.
template <int kSize>
struct TileShape {
  static constexpr int kRows = kSize;
  static constexpr int kOutputs = kSize;
  static constexpr int kGroups = kRows / kGroupRows;  // warpgroups that multiply
  static constexpr int kRowBytes = kRows * kStageLineBytes;
  static constexpr int kWeightBytes = kOutputs * kStageLineBytes;
  static constexpr int kStageSize = kRowBytes + kWeightBytes;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// The ring of stages of a block, in shared memory. Barriers count who has filled and who has emptied a stage.
struct Ring : RingPlace {
  uint32_t stages, full, empty;

  __device__ __forceinline__ uint32_t full_barrier() const { return full + static_cast<uint32_t>(index) * 8; }
  __device__ __forceinline__ uint32_t empty_barrier(int of) const { return empty + static_cast<uint32_t>(of) * 8; }
};

// A block's tiles: every `step`-th.
struct TileRange {
  int first, step, end;
};

template <typename Shape>
__device__ __forceinline__ const char* WeightsOf(const TileArguments& t, int tile) {
  return static_cast<const char*>(t.gemm.weights) +
         static_cast<int64_t>(tile / t.row_tiles) * (Shape::kOutputs / kSwizzledRows * kSwizzledGroupBytes);
}

// The thread that fills the ring.
template <typename Shape>
class Filler {
 public:
  __device__ __forceinline__ Filler(const TileArguments& arguments, Ring* ring) : t(arguments), ring_(*ring) {}

  __device__ __forceinline__ void Run(const TileRange& tiles, int stages_of_tile) {
    // Weights of the first stages do not wait for the rows.
    int ahead = 0;
    if (tiles.first < tiles.end) {
      ahead = min(kStages, stages_of_tile);
      GoTo(tiles.first);
#pragma unroll 1
      for (int i = 0; i < ahead; ++i) {
        BringWeights(ring_.stages + i * Shape::kStageSize, ring_.full + i * 8);
      }
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
        ring_.Next(kStages);
      }
    }
  }

 private:
  __device__ __forceinline__ void GoTo(int tile) {
    weights_ = WeightsOf<Shape>(t, tile);
    const int first_group = tile % t.row_tiles * (Shape::kRows / kSwizzledRows);
    row_bytes_ = min(Shape::kRows / kSwizzledRows, t.row_groups - first_group) * kSwizzledGroupBytes;
    rows_ = static_cast<const char*>(t.gemm.x) + static_cast<int64_t>(first_group) * kSwizzledGroupBytes;
  }

  __device__ __forceinline__ void BringWeights(uint32_t to, uint32_t barrier) {
    ArriveAndExpect(barrier, Shape::kWeightBytes + row_bytes_);
    CopyBulk(to + Shape::kRowBytes, weights_, Shape::kWeightBytes, barrier);
    weights_ += static_cast<int64_t>(t.weight_groups) * kSwizzledGroupBytes;
  }

  __device__ __forceinline__ void BringRows(uint32_t to, uint32_t barrier) {
    CopyBulk(to, rows_, row_bytes_, barrier);
    rows_ += static_cast<int64_t>(t.row_groups) * kSwizzledGroupBytes;
  }

  const TileArguments& t;
  Ring& ring_;
  const char *weights_, *rows_;  // of the next stage
  int row_bytes_;
};

// A warp of the warpgroups that multiply: 16 rows with all outputs of the tile.
template <typename Shape>
class Multiplier {
 public:
  static constexpr int kSums = Shape::kOutputs / 2;  // of a lane

  __device__ __forceinline__ explicit Multiplier(Ring* ring)
      : ring_(*ring), first_row_(static_cast<uint32_t>(threadIdx.x) / 128 * kGroupRows * kStageLineBytes) {}

  // Sums over one share of the columns.
  __device__ __forceinline__ void SumShare(int share_stages, float (&sums)[kSums]) {
    int previous = 0;
#pragma unroll 1
    for (int i = 0; i < share_stages; ++i) {
      AwaitPhase(ring_.full_barrier(), ring_.phase);
      const uint32_t rows = ring_.stages + static_cast<uint32_t>(ring_.index * Shape::kStageSize);
      const uint64_t x = MatrixDescriptor(rows + first_row_);
      const uint64_t w = MatrixDescriptor(rows + Shape::kRowBytes);
      FenceMmas();
#pragma unroll
      for (int k = 0; k < kStageColumns / 16; ++k) {
        // 32 bytes further, in units of 16.
        SharedWarpgroupMma<Shape::kOutputs, __nv_bfloat16>::Run(sums, x + 2 * k, w + 2 * k, i + k != 0 ? 1 : 0);
      }
      CommitMmas();
      if (i != 0) {
        AwaitMmas<1>();
        Release(previous);
      }
      previous = ring_.index;
      ring_.Next(kStages);
    }
    AwaitMmas<0>();
    KeepInPlace(sums);
    Release(previous);
  }

 private:
  // Gives back a stage that the products have read.
  __device__ __forceinline__ void Release(int stage) const {
    if (threadIdx.x % 32 == 0) Arrive(ring_.empty_barrier(stage));
  }

  Ring& ring_;
  const uint32_t first_row_;
};

// Finishes and stores a lane's sums of row `row`: of each eight outputs two neighbours, in `sums` from 4 j + kSecond
// on. `residuals` are those of the outputs, for kAdd.
template <GemmKind kKind, int kOutputs, int kSecond>
__device__ __forceinline__ void StoreRow(const GemmArguments& a, int64_t row, int first_weight, int lane, float factor,
                                         const float (&sums)[kOutputs / 2], const float2* residuals) {
  const int pair = SumFragment::Column(lane, 0);
  if constexpr (kKind == GemmKind::kNormGated) {
    const auto inner = [&](int j, int i) {
      const float gate = __fmul_rn(sums[8 * j + kSecond + i], factor);
      const float up = __fmul_rn(sums[8 * j + 4 + kSecond + i], factor);
      return Finished<GemmKind::kStore, __nv_bfloat16>(a, first_weight / 2 + 8 * j + pair + i,
                                                       Silu<__nv_bfloat16>(gate) * up, 0);
    };
    if (a.y_swizzled) {
      // A lane's pairs of a chunk are one unit.
#pragma unroll
      for (int c = 0; c < kOutputs / 2 / kChunk; ++c) {
        uint32_t words[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) words[j] = PackBf16(inner(4 * c + j, 0), inner(4 * c + j, 1));
        const int column = first_weight / 2 + c * kChunk;
        *reinterpret_cast<uint4*>(static_cast<char*>(a.y) + UnitOffset(a.rows, row, column / kSwizzledColumns,
                                                                       column % kSwizzledColumns / 8 + pair / 2)) = {
            words[0], words[1], words[2], words[3]};
      }
      return;
    }
    auto* const y = static_cast<__nv_bfloat16*>(a.y) + row * a.y_stride + first_weight / 2 + pair;
#pragma unroll
    for (int j = 0; j < kOutputs / 16; ++j) {
      *reinterpret_cast<uint32_t*>(y + 8 * j) = PackBf16(inner(j, 0), inner(j, 1));
    }
  } else {
    float* const y = static_cast<float*>(a.y) + row * a.y_stride + first_weight + pair;
#pragma unroll
    for (int j = 0; j < kOutputs / 8; ++j) {
      const float2 before = kKind == GemmKind::kAdd ? residuals[j] : float2{};
      const auto value = [&](int i, float previous) {
        return Finished<kKind, __nv_bfloat16>(a, first_weight + 8 * j + pair + i,
                                              __fmul_rn(sums[4 * j + kSecond + i], factor), previous);
      };
      *reinterpret_cast<float2*>(y + 8 * j) = {value(0, before.x), value(1, before.y)};
    }
  }
}

// Stores a warp's 16 rows from `first_row`; called by the whole warp.
template <GemmKind kKind, int kOutputs>
__device__ __forceinline__ void StoreTile(const GemmArguments& a, int64_t first_row, int first_weight, int lane,
                                          const float (&sums)[kOutputs / 2]) {
  const int64_t lower = first_row + SumFragment::Row(lane, 0);
  const int64_t rows[2] = {lower, lower + 8};
  float factors[2] = {1, 1};
  float2 residuals[2][kKind == GemmKind::kAdd ? kOutputs / 8 : 1];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int64_t row = min(rows[h], a.rows - 1);
    if constexpr (HasNorm(kKind)) factors[h] = __ldcg(a.factors + row);
    if constexpr (kKind == GemmKind::kAdd) {
      const float* const y =
          static_cast<const float*>(a.y) + row * a.y_stride + first_weight + SumFragment::Column(lane, 0);
#pragma unroll
      for (int j = 0; j < kOutputs / 8; ++j) residuals[h][j] = __ldcg(reinterpret_cast<const float2*>(y + 8 * j));
    }
  }
  // All loads come before the first store: the assembler would put each beside its use, behind the store before it.
  __syncwarp();
  if (rows[0] < a.rows) StoreRow<kKind, kOutputs, 0>(a, rows[0], first_weight, lane, factors[0], sums, residuals[0]);
  if (rows[1] < a.rows) StoreRow<kKind, kOutputs, 2>(a, rows[1], first_weight, lane, factors[1], sums, residuals[1]);
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

template <GemmKind kKind, int kSize>
__global__ void __launch_bounds__(ThreadsOf(kSize), BlocksOfSm(kSize))
    TileKernel(const __grid_constant__ TileArguments t) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Shape = TileShape<kSize>;
  extern __shared__ unsigned char raw[];
  const GemmArguments& a = t.gemm;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;

  // All blocks of the grid agree: nothing is under way in a block that ends here.
  if (a.live != nullptr && LoadL2(a.live) == 0) {
    WaitForPrevious();
    LetNextStart();
    return;
  }

  Ring ring;
  ring.stages = (SharedAddress(raw) + kAlign - 1) / kAlign * kAlign;
  ring.full = ring.stages + kStages * Shape::kStageSize;
  ring.empty = ring.full + kStages * 8;
  if (threadIdx.x == 0) {
#pragma unroll 1
    for (int i = 0; i < kStages; ++i) {
      InitializeBarrier(ring.full + i * 8, 1);
      InitializeBarrier(ring.empty + i * 8, Shape::kGroups * kGroupWarps);
    }
    FenceBarriers();
  }
  __syncthreads();

  const TileRange tiles = {static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x), t.tiles};
  const int share_stages = a.chunks / kStageChunks / kShares;
  if (warp >= Shape::kGroups * kGroupWarps) {
    if (lane == 0) {
      Filler<Shape> filler(t, &ring);
      filler.Run(tiles, kShares * share_stages);
    } else {
      WaitForPrevious();
      LetNextStart();
    }
    return;
  }

  WaitForPrevious();
  LetNextStart();
  Multiplier<Shape> multiplier(&ring);
  constexpr int kSums = Multiplier<Shape>::kSums;
#pragma unroll 1
  for (int tile = tiles.first; tile < tiles.end; tile += tiles.step) {
    float sums[kSums], totals[kSums];
    // Cleared because the compiler can't see that a share's first MMA overwrites `sums`.
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] = totals[i] = 0;
#pragma unroll 1
    for (int share = 0; share < kShares; ++share) {
      multiplier.SumShare(share_stages, sums);
#pragma unroll
      for (int i = 0; i < kSums; ++i) totals[i] = __fadd_rn(totals[i], sums[i]);
    }
    const int64_t first_row = static_cast<int64_t>(tile % t.row_tiles) * kSize + warp * kWarpRows;
    StoreTile<kKind, kSize>(a, first_row, tile / t.row_tiles * kSize, lane, totals);
  }
#endif
}

using Kernel = void (*)(TileArguments);

template <GemmKind kKind>
Kernel KernelOf(int size) {
  return size == 128 ? TileKernel<kKind, 128> : TileKernel<kKind, 64>;
}

// Null: there is none.
Kernel KernelFor(GemmKind kind, int size) {
  switch (kind) {
    case GemmKind::kNormStore:
      return KernelOf<GemmKind::kNormStore>(size);
    case GemmKind::kNormGated:
      return KernelOf<GemmKind::kNormGated>(size);
    case GemmKind::kAdd:
      return KernelOf<GemmKind::kAdd>(size);
    case GemmKind::kStore:
    case GemmKind::kStoreSilu:
      break;  // no product of a frame
  }
  return nullptr;
}

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A thread for each 16-byte unit of `swizzled`. Packed weights: a lane's 16 bytes are 8 neighbouring columns.
__global__ void ArrangeWeightsKernel(const char* packed, int weight_rows, int chunks, int tile_rows, char* swizzled) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int units = chunks * 4;
  if (i >= static_cast<int64_t>(weight_rows) * units) return;
  const int row = static_cast<int>(i / units);
  const int chunk = static_cast<int>(i % units) / 4;
  const int unit = static_cast<int>(i % 4);
  const int halves = tile_rows / 8;
  const int in_tile = row % tile_rows;
  const int64_t half = (static_cast<int64_t>(row / tile_rows) * chunks + chunk) * halves + in_tile / 8;
  const auto* const from = reinterpret_cast<const uint32_t*>(packed) + (half * 32 + in_tile % 8 * 4) * 4 + unit;
  constexpr int kChunks = kSwizzledColumns / kChunk;
  *reinterpret_cast<uint4*>(swizzled + UnitOffset(weight_rows, row, chunk / kChunks, chunk % kChunks * 4 + unit)) = {
      from[0], from[4], from[8], from[12]};
}

}  // namespace

bool HasTiles(const Matrix& matrix) {
  constexpr int kMinColumns = kShares * kStageColumns;  // shares of whole stages
  constexpr int kMinOutputs = 64;
  return KernelFor(matrix.kind, kMinOutputs) != nullptr && matrix.columns % kMinColumns == 0 &&
         matrix.weight_rows() % kMinOutputs == 0;
}

bool CanRunTiles(int size, const Matrix& matrix, const GemmRows& rows) {
  const Kernel kernel = KernelFor(matrix.kind, size);
  if (matrix.swizzled == nullptr || !HasTiles(matrix)) return false;
  if (matrix.weight_rows() % size != 0) return false;
  const bool aligned = rows.y_stride % 4 == 0 && reinterpret_cast<uintptr_t>(rows.y) % (4 * sizeof(float)) == 0;
  const bool has_rows = rows.x_swizzled || (rows.normed.x != nullptr && rows.normed.columns >= matrix.columns);
  const DeviceDescription* device = nullptr;
  return kernel != nullptr && aligned && has_rows && Succeeds(DescribeDevice(&device)) && device->CanRunWarpgroups();
}

void RunTiles(const Launcher& launch, const Matrix& matrix, int size, GemmArguments a, const NormedRows& scratch) {
  a.weights = matrix.swizzled;
  if (HasNorm(matrix.kind)) {
    NormRows(launch, a, scratch, RowOrder::kSwizzled);
    a.factors = scratch.factors;
    a.x = scratch.x;
  } else if (!a.x_swizzled) {
    ArrangeRows(launch, a, scratch);
    a.x = scratch.x;
  }
  TileArguments t = {};
  t.gemm = a;
  t.row_groups = static_cast<int>(PaddedRows(a.rows) / kSwizzledRows);
  t.weight_groups = matrix.weight_rows() / kSwizzledRows;
  t.row_tiles = static_cast<int>(CeilDiv(a.rows, size));
  t.tiles = t.row_tiles * (matrix.weight_rows() / size);
  const int at_once = launch.numbers->products.processors * BlocksOfSm(size);
  launch(KernelFor(matrix.kind, size), dim3(static_cast<unsigned>(std::min(t.tiles, at_once))), ThreadsOf(size),
         static_cast<size_t>(SharedBytesOf(size)), t);
}

void ArrangeWeights(const Launcher& launch, const Matrix& matrix, void* swizzled) {
  constexpr int kBlock = 256;
  const int64_t weight_rows = int64_t{matrix.tiles()} * TileOutputs(matrix.kind);
  const int64_t units = weight_rows * matrix.chunks() * 4;
  launch(ArrangeWeightsKernel, dim3(static_cast<unsigned>(CeilDiv(units, kBlock))), kBlock, 0,
         static_cast<const char*>(matrix.data), static_cast<int>(weight_rows), matrix.chunks(),
         TileOutputs(matrix.kind), static_cast<char*>(swizzled));
}

}  // namespace qtts::cuda::gemm
