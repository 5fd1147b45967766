// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>

#include "gemm/gemm_device.cuh"
#include "gemm/rows.h"
#include "gemm/wide.h"
#include "runtime/async_copy.cuh"

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

// 32 outputs of up to 8 * kRowTiles rows. As in the kernels for few rows each warp sums an eighth of the
// columns, chunk by chunk, and the eight sums are added in order. A warp's activations pass through shared
// memory of its own, so that warps wait for one another at the end only.
template <GemmKind kKind, int kRowTiles>
__global__ void __launch_bounds__(kThreads, 2) WideKernel(GemmArguments a) {
  constexpr int kRows = kRowTiles * kTileRows;
  constexpr bool kHalfTiles = TileOutputs(kKind) == 8;  // weights lie in tiles of 8
  constexpr int kCopies = kRows / kTileRows;            // of 16 bytes, per lane and chunk
  extern __shared__ __align__(16) unsigned char shared[];
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int group = lane / 4;
  const int quad = lane % 4;
  const auto [begin, count] = ShareOfChunks(a.chunks, warp);
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kRows;
  const int rows = static_cast<int>(min(static_cast<int64_t>(kRows), a.rows - first_row));

  constexpr int kPerTile = kKind == GemmKind::kNormGated ? 8 : 16;  // outputs
  const int tiles = (a.outputs + (kHalfTiles ? 8 : kPerTile) - 1) / (kHalfTiles ? 8 : kPerTile);
  const int first_tile = static_cast<int>(blockIdx.x) * kOutputTiles * (kHalfTiles ? 2 : 1);
  constexpr int kChunkStep = kHalfTiles ? 32 : 64;
  const uint4* const weights =
      static_cast<const uint4*>(a.weights) + (static_cast<int64_t>(first_tile) * a.chunks + begin) * kChunkStep + lane;
  uint4 w[kWeightsAhead][kOutputTiles][2];
  const auto load_weights = [&](uint4(&to)[kOutputTiles][2], int chunk) {
#pragma unroll
    for (int t = 0; t < kOutputTiles; ++t) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int tile = kHalfTiles ? 2 * t + h : t;
        to[t][h] = {};
        if (chunk < count && first_tile + tile < tiles) {
          to[t][h] = Streamed(weights + (tile * a.chunks + chunk) * kChunkStep + (kHalfTiles ? 0 : h * 32));
        }
      }
    }
  };
#pragma unroll
  for (int i = 0; i < kWeightsAhead; ++i) load_weights(w[i], i);
  const bool live = a.live == nullptr || LoadL2(a.live) != 0;

  WaitForPrevious();
  LetNextStart();
  if (!live) return;

  auto* const stage = reinterpret_cast<__nv_bfloat16*>(shared) + warp * kStages * kRows * kChunk;
  const auto stage_address = static_cast<uint32_t>(__cvta_generic_to_shared(stage));
  // This lane copies 16 bytes of rows group, group + 8, …
  const auto* const x =
      static_cast<const __nv_bfloat16*>(a.x) + (first_row + group) * a.x_stride + begin * kChunk + quad * 8;
  const auto copy = [&](int chunk) {
    if (chunk < count) {
      uint32_t to = stage_address + static_cast<uint32_t>(((chunk % kStages * kRows + group) * kChunk + quad * 8) * 2);
      const __nv_bfloat16* from = x + chunk * kChunk;
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        if (i * kTileRows + group < rows) CopyAsync16(to, from);
        to += kTileRows * kChunk * 2;
        from += kTileRows * a.x_stride;
      }
    }
    CommitCopies();
  };
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) copy(i);

  float sums[kOutputTiles][kRowTiles][4] = {};
  for (int base = 0; base < count; base += kWeightsAhead) {
#pragma unroll
    for (int i = 0; i < kWeightsAhead; ++i) {
      const int chunk = base + i;
      if (chunk >= count) break;
      AwaitCopies<kStages - 2>();
      __syncwarp();
      copy(chunk + kStages - 1);
      const __nv_bfloat16* const from = stage + (chunk % kStages * kRows + group) * kChunk + quad * 8;
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        const uint4 b = *reinterpret_cast<const uint4*>(from + r * kTileRows * kChunk);
#pragma unroll
        for (int t = 0; t < kOutputTiles; ++t) {
          const uint4 low = w[i][t][0];
          const uint4 high = w[i][t][1];
          Mma(sums[t][r], low.x, high.x, low.y, high.y, b.x, b.y);
          Mma(sums[t][r], low.z, high.z, low.w, high.w, b.z, b.w);
        }
      }
      load_weights(w[i], chunk + kWeightsAhead);
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
        float* const out = partial + (warp * kRows + r * kTileRows + 2 * quad + i) * kPartialStride + t * 16 + group;
        out[0] = sums[t][r][i];
        out[8] = sums[t][r][2 + i];
      }
    }
  }
  __syncthreads();

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
