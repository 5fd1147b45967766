// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>

#include "gemm/gemm_device.cuh"
#include "gemm/rows.h"
#include "gemm/wide.h"
#include "runtime/async_copy.cuh"
#include "runtime/fragment.h"

namespace qtts::cuda::gemm {
namespace {

constexpr int kOutputTiles = 2;  // of 16 weight rows, in a block
constexpr int kOutputs = 16 * kOutputTiles;
constexpr int kStages = 3;        // chunks of activations under way per warp
constexpr int kWeightsAhead = 2;  // chunks of weights in registers
// Floats between rows of partial sums: the lanes that store at once lie in different banks.
constexpr int kPartialStride = kOutputs + 4;

constexpr size_t StageBytes(int rows) { return static_cast<size_t>(kWarps * kStages * rows * kChunk) * 2; }
constexpr size_t PartialBytes(int rows) { return static_cast<size_t>(kWarps * rows * kPartialStride) * 4; }
constexpr size_t SharedBytes(int rows) { return std::max(StageBytes(rows), PartialBytes(rows)); }

// A warp's weights of a share: kWeightsAhead chunks in registers.
template <GemmKind kKind>
class WideWeights {
 public:
  __device__ __forceinline__ WideWeights(const GemmArguments& a, const ColumnShare& share, int lane)
      : chunks_(a.chunks),
        count_(share.count),
        tiles_((a.outputs + kTileValues - 1) / kTileValues - FirstTile()),
        weights_(static_cast<const uint4*>(a.weights) +
                 (static_cast<int64_t>(FirstTile()) * a.chunks + share.begin) * kChunkStep + lane) {
#pragma unroll
    for (int i = 0; i < kWeightsAhead; ++i) Load(i, i);
  }

  __device__ __forceinline__ void Load(int place, int chunk) {
#pragma unroll
    for (int t = 0; t < kOutputTiles; ++t) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int tile = kHalfTiles ? 2 * t + h : t;
        w[place][t][h] = {};
        if (chunk < count_ && tile < tiles_) {
          w[place][t][h] = Streamed(weights_ + (tile * chunks_ + chunk) * kChunkStep + (kHalfTiles ? 0 : h * 32));
        }
      }
    }
  }

  uint4 w[kWeightsAhead][kOutputTiles][2];

 private:
  static constexpr bool kHalfTiles = TileOutputs(kKind) == 8;                               // weights lie in tiles of 8
  static constexpr int kTileValues = kHalfTiles || kKind == GemmKind::kNormGated ? 8 : 16;  // outputs of a tile
  static constexpr int kChunkStep = kHalfTiles ? 32 : 64;

  static __device__ __forceinline__ int FirstTile() {
    return static_cast<int>(blockIdx.x) * kOutputTiles * (kHalfTiles ? 2 : 1);
  }

  const int chunks_, count_;
  const int tiles_;  // of the matrix, from the block's first on
  const uint4* const weights_;
};

// A warp's activations of a share, on their way through shared memory of its own.
template <int kRowTiles>
class WideRows {
 public:
  __device__ __forceinline__ WideRows(const GemmArguments& a, __nv_bfloat16* stage, int64_t first_row, int rows,
                                      const ColumnShare& share, int lane)
      : stage_(SharedAddress(stage + UnitFragment::Row(lane) * kChunk + UnitFragment::Column(lane))),
        x_(static_cast<const __nv_bfloat16*>(a.x) + (first_row + UnitFragment::Row(lane)) * a.x_stride +
           share.begin * kChunk + UnitFragment::Column(lane)),
        x_stride_(a.x_stride),
        rows_(rows - UnitFragment::Row(lane)),
        count_(share.count) {
#pragma unroll
    for (int i = 0; i < kStages - 1; ++i) Copy(i);
  }

  // Starts the copy of a chunk, of this lane's 16 bytes of every eighth row; a group of copies in any case.
  __device__ __forceinline__ void Copy(int chunk) const {
    if (chunk < count_) {
      uint32_t to = stage_ + static_cast<uint32_t>(chunk % kStages * kStageElements * 2);
      const __nv_bfloat16* from = x_ + chunk * kChunk;
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        if (i * kTileRows < rows_) CopyAsync16(to, from);
        to += kTileRows * kChunk * 2;
        from += kTileRows * x_stride_;
      }
    }
    CommitCopies();
  }

  // Returns the lane's part of a chunk of the r-th eight rows.
  __device__ __forceinline__ uint4 Load(int chunk, int r) const {
    return LoadShared16(stage_ +
                        static_cast<uint32_t>((chunk % kStages * kStageElements + r * kTileRows * kChunk) * 2));
  }

 private:
  static constexpr int kStageElements = kRowTiles * kTileRows * kChunk;

  const uint32_t stage_;  // of the lane, in shared memory
  const __nv_bfloat16* const x_;
  const int x_stride_, rows_, count_;
};

// Finishes the outputs of a block's rows from the warps' sums, [warp][row][kPartialStride].
template <GemmKind kKind, int kRows>
__device__ __forceinline__ void FinishWide(const GemmArguments& a, int64_t first_row, int rows, const float* partial) {
  constexpr int kValues = kKind == GemmKind::kNormGated ? kOutputs / 2 : kOutputs;
  for (int i = threadIdx.x; i < kValues * rows; i += kThreads) {
    const int m = i % kValues;
    const int n = i / kValues;
    const int64_t row = first_row + n;
    const int output = blockIdx.x * kValues + m;
    const float factor = HasNorm(kKind) ? __ldcg(a.factors + row) : 1;
    const auto total = [&](int of) {
      return SumOfShares(partial + n * kPartialStride + of, kRows * kPartialStride, factor);
    };
    if constexpr (kKind == GemmKind::kNormGated) {
      const int gate = m / 8 * 16 + m % 8;
      if (output < a.outputs) {
        const float value = Silu<__nv_bfloat16>(total(gate)) * total(gate + 8);
        static_cast<__nv_bfloat16*>(a.y)[row * a.y_stride + output] = FromFloat<__nv_bfloat16>(value);
      }
    } else {
      float previous = 0;
      if (kKind == GemmKind::kAdd && output < a.outputs) {
        previous = LoadL2(static_cast<const float*>(a.y) + row * a.y_stride + output);
      }
      Finish<kKind, __nv_bfloat16>(a, row, output, total(m), previous);
    }
  }
}

// 32 outputs of up to 8 * kRowTiles rows. As in the kernels for few rows each warp sums an eighth of the
// columns, chunk by chunk, and the eight sums are added in order. Warps wait for one another at the end only.
template <GemmKind kKind, int kRowTiles>
__global__ void __launch_bounds__(kThreads, 2) WideKernel(GemmArguments a) {
  constexpr int kRows = kRowTiles * kTileRows;
  extern __shared__ __align__(16) unsigned char shared[];
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const ColumnShare share = ShareOfChunks(a.chunks, warp);
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kRows;
  const int rows = static_cast<int>(min(static_cast<int64_t>(kRows), a.rows - first_row));
  WideWeights<kKind> weights(a, share, lane);
  const bool live = a.live == nullptr || LoadL2(a.live) != 0;

  WaitForPrevious();
  LetNextStart();
  if (!live) return;

  const WideRows<kRowTiles> x(a, reinterpret_cast<__nv_bfloat16*>(shared) + warp * kStages * kRows * kChunk, first_row,
                              rows, share, lane);
  float sums[kOutputTiles][kRowTiles][4] = {};
  for (int base = 0; base < share.count; base += kWeightsAhead) {
#pragma unroll
    for (int i = 0; i < kWeightsAhead; ++i) {
      const int chunk = base + i;
      if (chunk >= share.count) break;
      AwaitCopies<kStages - 2>();
      __syncwarp();
      x.Copy(chunk + kStages - 1);
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        const uint4 unit = x.Load(chunk, r);
#pragma unroll
        for (int t = 0; t < kOutputTiles; ++t) MultiplyChunk(sums[t][r], weights.w[i][t][0], weights.w[i][t][1], unit);
      }
      weights.Load(i, chunk + kWeightsAhead);
    }
  }
  AwaitCopies<0>();
  __syncthreads();

  auto* const partial = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int t = 0; t < kOutputTiles; ++t) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float* const out = partial + (warp * kRows + r * kTileRows + SumFragment::Column(lane, i)) * kPartialStride +
                           t * SumFragment::kRows + SumFragment::Row(lane, 0);
        out[0] = sums[t][r][i];
        out[8] = sums[t][r][2 + i];
      }
    }
  }
  __syncthreads();
  FinishWide<kKind, kRows>(a, first_row, rows, partial);
}

template <GemmKind kKind>
void Run(const Launcher& launch, const GemmArguments& a, int rows_of_block) {
  constexpr int kValues = kKind == GemmKind::kNormGated ? kOutputs / 2 : kOutputs;
  const dim3 grid(static_cast<unsigned>((a.outputs + kValues - 1) / kValues),
                  static_cast<unsigned>((a.rows + rows_of_block - 1) / rows_of_block));
  const auto kernel = rows_of_block == 16   ? WideKernel<kKind, 2>
                      : rows_of_block == 32 ? WideKernel<kKind, 4>
                                            : WideKernel<kKind, 8>;
  launch(kernel, grid, kThreads, SharedBytes(rows_of_block), a);
}

}  // namespace

void RunWide(const Launcher& launch, GemmKind kind, GemmArguments a, int rows_of_block, const NormedRows& normed) {
  if (HasNorm(kind)) {
    NormRows(launch, a, normed, RowOrder::kPlain);
    a.x = normed.x;
    a.x_stride = a.chunks * kChunk;
    a.factors = normed.factors;
  }
  switch (kind) {
    case GemmKind::kNormStore:
      return Run<GemmKind::kNormStore>(launch, a, rows_of_block);
    case GemmKind::kNormGated:
      return Run<GemmKind::kNormGated>(launch, a, rows_of_block);
    case GemmKind::kAdd:
      return Run<GemmKind::kAdd>(launch, a, rows_of_block);
    case GemmKind::kStore:
      return Run<GemmKind::kStore>(launch, a, rows_of_block);
    case GemmKind::kStoreSilu:
      return Run<GemmKind::kStoreSilu>(launch, a, rows_of_block);
  }
}

}  // namespace qtts::cuda::gemm
