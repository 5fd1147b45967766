// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>

#include "gemm/few.h"
#include "gemm/gemm_device.cuh"
#include "runtime/async_copy.cuh"

namespace qtts::cuda::gemm {
namespace {

// Sums each of v[0..8) over the warp; lane l gets the sum of v[TransposedRow(l)].
__device__ __forceinline__ float TransposedSum(float (&v)[kTileRows], int lane) {
#pragma unroll
  for (int offset = 16, n = 4; n >= 1; offset /= 2, n /= 2) {
    const bool upper = (lane & offset) != 0;
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const float kept = upper ? v[i + n] : v[i];
      const float sent = upper ? v[i] : v[i + n];
      v[i] = kept + __shfl_xor_sync(~0U, sent, offset);
    }
  }
  float sum = v[0];
  sum += __shfl_xor_sync(~0U, sum, 2);
  sum += __shfl_xor_sync(~0U, sum, 1);
  return sum;
}
__device__ __forceinline__ int TransposedRow(int lane) { return lane / 4; }

// Rows that share a block: one; up to 8; up to 16.
enum class Rows { kOne, kTile, kTwoTiles };

constexpr int TilesOf(Rows rows) { return rows == Rows::kTwoTiles ? 2 : 1; }

// Minimum thread blocks per SM, by register use: those for one row must overlap the next kernel's.
constexpr int BlocksTogether(Rows rows) { return rows == Rows::kOne ? 4 : 2; }

constexpr int ChunksAhead(GemmKind kind) { return TileOutputs(kind) == 16 ? 4 : 8; }
// Maximum chunks of a warp loaded into shared memory meanwhile; more would need more registers.
constexpr int ChunksBehind(GemmKind kind) { return TileOutputs(kind) == 16 ? 0 : 8; }
constexpr int kChunkBytes = 512;  // of a chunk of 8 outputs

// Spans of columns of x that a warp loads at once.
constexpr int SpansTogether(Rows rows) { return rows == Rows::kOne ? 2 : 1; }

// Elements between staged rows: no bank conflicts between the rows of a fragment.
__host__ __device__ constexpr int StageStride(int chunks) { return (chunks + 1 - chunks % 2) * kChunk; }

// Dynamic shared memory: all columns of up to 8 rows. Two tiles are staged piece by piece instead.
size_t StageBytes(int chunks, int64_t rows) {
  const int per_warp = ChunksOfShare(chunks);
  return static_cast<size_t>(kWarps) * static_cast<size_t>(rows) * static_cast<size_t>(StageStride(per_warp)) * 2;
}

// One tile of outputs, in BF16. Each warp has an eighth of the chunks of columns and keeps kAhead of
// them in flight in registers; at the beginning, before there are rows, kBehind more to shared memory.
template <GemmKind kKind, Rows kShape>
__global__ void __launch_bounds__(kThreads, BlocksTogether(kShape)) Bf16Kernel(GemmArguments a) {
  constexpr int kTiles = TilesOf(kShape);
  constexpr bool kWholeStage = kTiles == 1;
  constexpr int kTileRowsUsed = kShape == Rows::kOne ? 1 : kTileRows;
  constexpr int kHalves = TileOutputs(kKind) / 8;
  constexpr int kAhead = ChunksAhead(kKind);
  constexpr int kBehind = kWholeStage ? ChunksBehind(kKind) : 0;
  constexpr int kOutputs = 8 * kHalves;
  constexpr int kRows = kTiles * kTileRows;
  constexpr int kPerLane = HasNorm(kKind) ? 4 : 8;  // elements of x in 16 bytes
  constexpr int kSpan = 32 * kPerLane;              // columns that a warp brings in at once

  constexpr int kPieceStride = StageStride(kAhead);
  constexpr int kPieceBytes = kWholeStage ? 0 : kWarps * kTileRows * kPieceStride * 2;
  constexpr int kPartialBytes = kWarps * kRows * kOutputs * 4;
  __shared__ __align__(16) unsigned char memory[kPieceBytes > kPartialBytes ? kPieceBytes : kPartialBytes];
  extern __shared__ __align__(16) unsigned char whole_stage[];
  __shared__ float squares[kWarps][kRows];
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int group = lane / 4;
  const int quad = lane % 4;

  const int per_warp = ChunksOfShare(a.chunks);
  const auto [begin, count] = ShareOfChunks(a.chunks, warp);
  const uint4* const weights = static_cast<const uint4*>(a.weights) +
                               (static_cast<int64_t>(blockIdx.x) * a.chunks + begin) * (32 * kHalves) + lane;
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kRows;
  const int rows = static_cast<int>(min(static_cast<int64_t>(kRows), a.rows - first_row));

  const int stride = kWholeStage ? StageStride(per_warp) : kPieceStride;
  auto* const stage = reinterpret_cast<__nv_bfloat16*>(kWholeStage ? whole_stage : memory) +
                      warp * (kWholeStage ? rows : kTileRows) * stride;
  auto* const partial = reinterpret_cast<float*>(memory);
  // Behind the stage, [chunk][warp][lane]: what a lane uses it brings itself.
  const uint4* const behind =
      reinterpret_cast<const uint4*>(whole_stage + kWarps * rows * stride * 2) + warp * 32 + lane;

  uint4 w[kAhead][kHalves];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      if (i < count) w[i][h] = Streamed(weights + (i * kHalves + h) * 32);
    }
  }
  if constexpr (kBehind > 0) {
#pragma unroll
    for (int i = 0; i < kBehind; ++i) {
      if (kAhead + i < count) CopyAsync16(SharedAddress(behind + i * kThreads), weights + (kAhead + i) * 32);
    }
    CommitCopies();
  }
  // The column of x, from the warp's first, with which this lane begins.
  const int column = lane * kPerLane;
  const auto norm_at = [&](int c) {
    return HasNorm(kKind) && c < count * kChunk ? *reinterpret_cast<const float4*>(a.norm + begin * kChunk + c)
                                                : float4{};
  };
  const float4 first_norm = norm_at(column);
  float previous = 0;  // of kAdd: what this thread adds to
  if (kKind == GemmKind::kAdd && kTiles == 1) {
    const int n = threadIdx.x / kOutputs;
    const int output = blockIdx.x * kOutputs + threadIdx.x % kOutputs;
    if (n < rows && output < a.outputs) {
      previous = LoadL2(static_cast<const float*>(a.y) + (first_row + n) * a.y_stride + output);
    }
  }
  const bool live = a.live == nullptr || LoadL2(a.live) != 0;

  WaitForPrevious();
  LetNextStart();
  if (!live) return;

  float sums[kTiles][4] = {};
  float square[kTiles] = {};
  // Asks for kSpan columns from `c` of the rows of tile t.
  const auto fetch = [&](int t, int c, bool mine, uint4* raw) {
#pragma unroll
    for (int r = 0; r < kTileRowsUsed; ++r) {
      raw[r] = {};
      if (mine && t * kTileRows + r < rows) {
        const int64_t at = (first_row + t * kTileRows + r) * a.x_stride + begin * kChunk + c;
        raw[r] = LoadL2(reinterpret_cast<const uint4*>(static_cast<const char*>(a.x) + at * (16 / kPerLane)));
      }
    }
  };
  // Brings them to column `to` of the stage.
  const auto bring = [&](int t, const uint4* raw, int to, float4 norm, bool mine) {
    float products[kTileRows] = {};
#pragma unroll
    for (int r = 0; r < kTileRowsUsed; ++r) {
      if constexpr (HasNorm(kKind)) {
        const float x0 = __uint_as_float(raw[r].x), x1 = __uint_as_float(raw[r].y);
        const float x2 = __uint_as_float(raw[r].z), x3 = __uint_as_float(raw[r].w);
        products[r] = SumOfSquares(x0, x1, x2, x3);
        const uint2 packed = NormedFour(x0, x1, x2, x3, norm);
        if (mine && t * kTileRows + r < rows) *reinterpret_cast<uint2*>(stage + r * stride + to) = packed;
      } else {
        if (mine && t * kTileRows + r < rows) *reinterpret_cast<uint4*>(stage + r * stride + to) = raw[r];
      }
    }
    if constexpr (HasNorm(kKind)) {
      // For one row the same additions as for row 0 of eight.
      square[t] += kTileRowsUsed == 1 ? WarpSum(products[0]) : TransposedSum(products, lane);
    }
  };
  const auto multiply = [&](int t, int i, int at) {
    uint4 b = {};
    if (t * kTileRows + group < rows && group < kTileRowsUsed) {
      b = *reinterpret_cast<const uint4*>(stage + group * stride + at + quad * 8);
    }
    const uint4 low = w[i][0];
    const uint4 high = kHalves == 2 ? w[i][kHalves - 1] : uint4{};
    Mma(sums[t], low.x, high.x, low.y, high.y, b.x, b.y);
    Mma(sums[t], low.z, high.z, low.w, high.w, b.z, b.w);
  };

  if constexpr (kWholeStage) {
    constexpr int kTogether = SpansTogether(kShape);
#pragma unroll 2
    for (int first = column; first - column < count * kChunk; first += kTogether * kSpan) {
      uint4 raw[kTogether][kTileRowsUsed];
#pragma unroll
      for (int s = 0; s < kTogether; ++s) {
        const int c = first + s * kSpan;
        if (c - column < count * kChunk) fetch(0, c, c < count * kChunk, raw[s]);
      }
#pragma unroll
      for (int s = 0; s < kTogether; ++s) {
        const int c = first + s * kSpan;
        if (c - column < count * kChunk) {
          bring(0, raw[s], c, c == column ? first_norm : norm_at(c), c < count * kChunk);
        }
      }
    }
    __syncwarp();
  }
  if constexpr (kBehind > 0) AwaitCopies<0>();
  for (int base = 0; base < count; base += kAhead) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      if constexpr (!kWholeStage) {
        const int c = base * kChunk + column;
        const bool mine = column < kAhead * kChunk && c < count * kChunk;
        uint4 raw[kTileRowsUsed];
        fetch(t, c, mine, raw);
        bring(t, raw, column, base == 0 ? first_norm : norm_at(c), mine);
        __syncwarp();
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (base + i < count) multiply(t, i, (kWholeStage ? base + i : i) * kChunk);
        if (t == kTiles - 1 && base + kAhead + i < count) {
#pragma unroll
          for (int h = 0; h < kHalves; ++h) {
            w[i][h] = base + i < kBehind ? behind[(base + i) * kThreads]
                                         : Streamed(weights + ((base + kAhead + i) * kHalves + h) * 32);
          }
        }
      }
      if constexpr (!kWholeStage) __syncwarp();
    }
  }

  if (!kWholeStage) __syncthreads();
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int n = t * kTileRows + 2 * quad + i;
      float* const out = partial + (warp * kRows + n) * kOutputs + group;
      out[0] = sums[t][i];
      if (kHalves == 2) out[8] = sums[t][2 + i];
    }
    if (HasNorm(kKind) && quad == 0) squares[warp][t * kTileRows + TransposedRow(lane)] = square[t];
  }
  __syncthreads();

  constexpr int kValues = kKind == GemmKind::kNormGated ? 8 : kOutputs;
  for (int i = threadIdx.x; i < kValues * rows; i += kThreads) {
    const int m = i % kValues;
    const int n = i / kValues;
    float factor = 1;
    if constexpr (HasNorm(kKind)) factor = NormFactor(&squares[0][n], kRows, a.columns, a.eps);
    const auto total = [&](int output) {
      return SumOfShares(partial + n * kOutputs + output, kRows * kOutputs, factor);
    };
    const int64_t row = first_row + n;
    if constexpr (kKind == GemmKind::kNormGated) {
      const int output = blockIdx.x * 8 + m;
      if (output < a.outputs) {
        const float value = Silu<__nv_bfloat16>(total(m)) * total(m + 8);
        static_cast<__nv_bfloat16*>(a.y)[row * a.y_stride + output] = FromFloat<__nv_bfloat16>(value);
      }
    } else {
      const int output = blockIdx.x * kOutputs + m;
      if (kKind == GemmKind::kAdd && kTiles > 1 && output < a.outputs) {
        previous = LoadL2(static_cast<const float*>(a.y) + row * a.y_stride + output);
      }
      Finish<kKind, __nv_bfloat16>(a, row, output, total(m), previous);
    }
  }
}

template <GemmKind kKind>
void Run(const Launcher& launch, int tiles, const GemmArguments& a, GemmShape shape) {
  const auto blocks = [&](int64_t rows) {
    return dim3(static_cast<unsigned>(tiles), static_cast<unsigned>((a.rows + rows - 1) / rows));
  };
  const size_t stage = StageBytes(a.chunks, std::min<int64_t>(a.rows, 8));
  const int left = ChunksOfShare(a.chunks) - ChunksAhead(kKind);
  const size_t shared = stage + static_cast<size_t>(std::clamp(left, 0, ChunksBehind(kKind)) * kWarps * kChunkBytes);
  if (shape == GemmShape::kOneRow) return launch(Bf16Kernel<kKind, Rows::kOne>, blocks(1), kThreads, shared, a);
  if (shape == GemmShape::k8Rows) return launch(Bf16Kernel<kKind, Rows::kTile>, blocks(8), kThreads, shared, a);
  launch(Bf16Kernel<kKind, Rows::kTwoTiles>, blocks(16), kThreads, 0, a);
}

}  // namespace

size_t FewStageBytes(int chunks, int64_t rows) { return StageBytes(chunks, rows); }

void RunFew(const Launcher& launch, GemmKind kind, int tiles, const GemmArguments& a, GemmShape shape) {
  switch (kind) {
    case GemmKind::kNormStore:
      return Run<GemmKind::kNormStore>(launch, tiles, a, shape);
    case GemmKind::kNormGated:
      return Run<GemmKind::kNormGated>(launch, tiles, a, shape);
    case GemmKind::kAdd:
      return Run<GemmKind::kAdd>(launch, tiles, a, shape);
    case GemmKind::kStore:
      return Run<GemmKind::kStore>(launch, tiles, a, shape);
    case GemmKind::kStoreSilu:
      return Run<GemmKind::kStoreSilu>(launch, tiles, a, shape);
  }
}

}  // namespace qtts::cuda::gemm
