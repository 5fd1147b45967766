// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>
#include <iterator>

#include "gemm/cluster.h"
#include "gemm/gemm_device.cuh"
#include "gemm/wide.h"
#include "runtime/async_copy.cuh"

namespace qtts::cuda {
namespace gemm {
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

// Blocks that registers are to leave room for on a processor: one row's must overlap the next kernel's.
constexpr int BlocksTogether(Rows rows) { return rows == Rows::kOne ? 4 : 2; }

constexpr int ChunksAhead(GemmKind kind) { return TileOutputs(kind) == 16 ? 4 : 8; }
// A warp's chunks that come to shared memory meanwhile, at most: for more there are no registers.
constexpr int ChunksBehind(GemmKind kind) { return TileOutputs(kind) == 16 ? 0 : 8; }
constexpr int kChunkBytes = 512;  // of a chunk of 8 outputs

// Spans of columns of x that a warp asks for at once.
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
      previous = Fresh(static_cast<const float*>(a.y) + (first_row + n) * a.y_stride + output);
    }
  }
  const bool live = a.live == nullptr || Fresh(a.live) != 0;

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
        raw[r] = Fresh(reinterpret_cast<const uint4*>(static_cast<const char*>(a.x) + at * (16 / kPerLane)));
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
        previous = Fresh(static_cast<const float*>(a.y) + row * a.y_stride + output);
      }
      Finish<kKind, __nv_bfloat16>(a, row, output, total(m), previous);
    }
  }
}

// The same in F32: a warp computes the outputs warp and warp + 8 of the tile for 8 rows.
template <GemmKind kKind>
__global__ void __launch_bounds__(kThreads) F32Kernel(GemmArguments a) {
  constexpr int kOutputs = TileOutputs(kKind);
  constexpr int kHalves = kOutputs / 8;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kTileRows;
  const int rows = static_cast<int>(min(static_cast<int64_t>(kTileRows), a.rows - first_row));
  const int width = a.chunks * kChunk;
  const float* const weights =
      static_cast<const float*>(a.weights) + (static_cast<int64_t>(blockIdx.x) * kOutputs + warp) * width;
  const bool live = a.live == nullptr || Fresh(a.live) != 0;

  WaitForPrevious();
  LetNextStart();
  if (!live) return;

  float sums[kHalves][kTileRows] = {};
  float squares[kTileRows] = {};
  for (int k = lane * 4; k < width; k += 128) {
    float4 w[kHalves];
#pragma unroll
    for (int h = 0; h < kHalves; ++h) w[h] = *reinterpret_cast<const float4*>(weights + h * 8 * width + k);
    float4 scale = {1, 1, 1, 1};
    if (HasNorm(kKind)) scale = *reinterpret_cast<const float4*>(a.norm + k);
#pragma unroll
    for (int r = 0; r < kTileRows; ++r) {
      if (r >= rows) continue;
      const float4 x =
          __ldcg(reinterpret_cast<const float4*>(static_cast<const float*>(a.x) + (first_row + r) * a.x_stride + k));
      if (HasNorm(kKind)) squares[r] += x.x * x.x + x.y * x.y + (x.z * x.z + x.w * x.w);
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        sums[h][r] +=
            w[h].x * (x.x * scale.x) + w[h].y * (x.y * scale.y) + (w[h].z * (x.z * scale.z) + w[h].w * (x.w * scale.w));
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kTileRows; ++r) {
    if (r >= rows) continue;
    float factor = 1;
    if (HasNorm(kKind)) factor = 1.0F / sqrtf(WarpSum(squares[r]) / static_cast<float>(a.columns) + a.eps);
    float totals[kHalves];
#pragma unroll
    for (int h = 0; h < kHalves; ++h) totals[h] = WarpSum(sums[h][r]) * factor;
    if (lane != 0) continue;
    const int64_t row = first_row + r;
    if constexpr (kKind == GemmKind::kNormGated) {
      const int output = blockIdx.x * 8 + warp;
      if (output < a.outputs) {
        static_cast<float*>(a.y)[row * a.y_stride + output] = Silu<float>(totals[0]) * totals[kHalves - 1];
      }
    } else {
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        const int output = blockIdx.x * kOutputs + h * 8 + warp;
        float previous = 0;
        if (kKind == GemmKind::kAdd && output < a.outputs) {
          previous = Fresh(static_cast<const float*>(a.y) + row * a.y_stride + output);
        }
        Finish<kKind, float>(a, row, output, totals[h], previous);
      }
    }
  }
}

template <GemmKind kKind>
void RunFew(const Launcher& launch, const Matrix& matrix, const GemmArguments& a, GemmShape shape) {
  const auto blocks = [&](int64_t rows) {
    return dim3(static_cast<unsigned>(matrix.tiles()), static_cast<unsigned>((a.rows + rows - 1) / rows));
  };
  const size_t stage = StageBytes(a.chunks, std::min<int64_t>(a.rows, 8));
  const int left = ChunksOfShare(a.chunks) - ChunksAhead(kKind);
  const size_t shared = stage + static_cast<size_t>(std::clamp(left, 0, ChunksBehind(kKind)) * kWarps * kChunkBytes);
  if (shape == GemmShape::kOneRow) return launch(Bf16Kernel<kKind, Rows::kOne>, blocks(1), kThreads, shared, a);
  if (shape == GemmShape::k8Rows) return launch(Bf16Kernel<kKind, Rows::kTile>, blocks(8), kThreads, shared, a);
  launch(Bf16Kernel<kKind, Rows::kTwoTiles>, blocks(16), kThreads, 0, a);
}

template <GemmKind kKind>
void RunF32(const Launcher& launch, const Matrix& matrix, const GemmArguments& a) {
  launch(F32Kernel<kKind>, dim3(static_cast<unsigned>(matrix.tiles()), static_cast<unsigned>((a.rows + 7) / 8)),
         kThreads, 0, a);
}

template <GemmKind kKind>
void Run(const Launcher& launch, Precision precision, const Matrix& matrix, const GemmRows& r) {
  const GemmArguments a = {matrix.data, matrix.bias, matrix.outputs, matrix.columns, matrix.chunks(), r.x,
                           r.x_stride,  r.y,         r.y_stride,     r.rows,         r.norm,          r.eps,
                           r.live,      nullptr};
  if (precision == Precision::kF32) return RunF32<kKind>(launch, matrix, a);
  const GemmShape shape = r.shape == GemmShape::kBest ? ChooseShape(matrix, r, launch.numbers->products) : r.shape;
  switch (shape) {
    case GemmShape::kWide16:
      return RunWide(launch, kKind, a, 16, r.normed);
    case GemmShape::kWide32:
      return RunWide(launch, kKind, a, 32, r.normed);
    case GemmShape::kWide64:
      return RunWide(launch, kKind, a, 64, r.normed);
    case GemmShape::kCluster:
      return RunCluster(launch, a);
    default:
      return RunFew<kKind>(launch, matrix, a, shape);
  }
}

// --- Packing -----------------------------------------------------------------------------------

__device__ float Element(DType type, const void* source, int64_t at) {
  if (type == DType::kF32) return static_cast<const float*>(source)[at];
  const uint16_t bits = static_cast<const uint16_t*>(source)[at];
  if (type == DType::kBF16) return __uint_as_float(static_cast<uint32_t>(bits) << 16);
  // F16, by value; subnormals are exact in F32.
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  float value;
  if (exponent == 31) {
    value = __uint_as_float(0x7F800000U | static_cast<uint32_t>(mantissa) << 13);
  } else if (exponent == 0) {
    value = static_cast<float>(mantissa) * (1.0F / 16777216.0F);
  } else {
    value = __uint_as_float(static_cast<uint32_t>(exponent + 112) << 23 | static_cast<uint32_t>(mantissa) << 13);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

__global__ void PackKernel(Precision precision, int chunks, int tile_outputs, PackPart part, DType type,
                           const void* source, int64_t first, int64_t rows, int columns, void* target) {
  const int groups = (columns + 7) / 8;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= rows * groups) return;
  const int64_t row = i / groups;
  const int k = static_cast<int>(i % groups) * 8;
  const int64_t output = first + row;
  const int64_t tile = part == PackPart::kWhole ? output / tile_outputs : output / 8;
  const int m = part == PackPart::kWhole ? static_cast<int>(output % tile_outputs)
                                         : static_cast<int>(output % 8) + (part == PackPart::kUp ? 8 : 0);
  const int valid = min(8, columns - k);
  if (precision == Precision::kF32) {
    float* const out = static_cast<float*>(target) + (tile * tile_outputs + m) * chunks * kChunk + k;
    for (int e = 0; e < valid; ++e) out[e] = Element(type, source, row * columns + k + e);
    return;
  }
  const int halves = tile_outputs / 8;
  const int lane = m % 8 * 4 + k % kChunk / 8;
  const int64_t block = (tile * chunks + k / kChunk) * halves + m / 8;
  __nv_bfloat16* const out = static_cast<__nv_bfloat16*>(target) + (block * 32 + lane) * 8;
  for (int e = 0; e < valid; ++e) out[e] = FromFloat<__nv_bfloat16>(Element(type, source, row * columns + k + e));
}

template <typename T>
__global__ void ConvertKernel(DType type, const void* source, int64_t rows, int64_t columns, T* target,
                              int64_t stride) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < rows * columns;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    target[i / columns * stride + i % columns] = FromFloat<T>(Element(type, source, i));
  }
}

constexpr int kPackThreads = 256;

unsigned BlocksFor(int64_t threads) { return static_cast<unsigned>((threads + kPackThreads - 1) / kPackThreads); }

}  // namespace
}  // namespace gemm

bool CanRun(GemmShape shape, const Matrix& matrix, const GemmRows& rows, const ProductNumbers& numbers) {
  // More shared memory than this would keep blocks off the processor.
  constexpr size_t kMaxStage = size_t{64} << 10;
  switch (shape) {
    case GemmShape::kOneRow:
      return rows.rows == 1 && gemm::StageBytes(matrix.chunks(), 1) <= kMaxStage;
    case GemmShape::k8Rows:
      return gemm::StageBytes(matrix.chunks(), std::min<int64_t>(rows.rows, 8)) <= kMaxStage;
    case GemmShape::kWide16:
    case GemmShape::kWide32:
    case GemmShape::kWide64:
      return !gemm::HasNorm(matrix.kind) || rows.normed.x != nullptr;
    case GemmShape::kCluster:
      return matrix.kind == GemmKind::kAdd &&
             gemm::CanRunCluster(matrix.outputs, matrix.chunks(), rows.rows, numbers.clusters_at_once);
    default:
      return true;
  }
}

// Few rows: what is quickest for a stream. Clusters, wherever they can, are quicker than all that several rounds of
// blocks or many columns make slow. Of the others each shape's time is nearly a line over its number of blocks; what
// matters is where the lines cross.
GemmShape ChooseShape(const Matrix& matrix, const GemmRows& rows, const ProductNumbers& numbers) {
  const auto can_run = [&](GemmShape shape) { return CanRun(shape, matrix, rows, numbers); };
  if (can_run(GemmShape::kOneRow)) return GemmShape::kOneRow;
  const bool one_round = matrix.tiles() * ((rows.rows + 7) / 8) <= numbers.blocks_at_once;
  const bool quick = one_round && rows.rows <= numbers.quick_rows && matrix.columns <= numbers.quick_columns;
  if (rows.rows > 4 && !quick && can_run(GemmShape::kCluster)) return GemmShape::kCluster;
  if ((rows.rows <= 4 || one_round) && can_run(GemmShape::k8Rows)) return GemmShape::k8Rows;
  if (rows.rows <= 4 || !can_run(GemmShape::kWide16)) return GemmShape::k16Rows;
  struct Choice {
    GemmShape shape;
    int64_t block_rows;
    ProductNumbers::Line line;
  };
  const Choice choices[] = {{GemmShape::kWide16, 16, numbers.wide16},
                            {GemmShape::kWide32, 32, numbers.wide32},
                            {GemmShape::kWide64, 64, numbers.wide64}};
  const auto time = [&](const Choice& choice) {
    return choice.line.base + choice.line.per_block * WideBlocks(matrix, rows.rows, choice.block_rows);
  };
  const Choice* const best = std::min_element(std::begin(choices), std::end(choices),
                                              [&](const Choice& a, const Choice& b) { return time(a) < time(b); });
  return best->shape;
}

int64_t WideBlocks(const Matrix& matrix, int64_t rows, int64_t block_rows) {
  const int64_t weight_rows = (matrix.kind == GemmKind::kNormGated ? 2 : 1) * int64_t{matrix.outputs};
  return (weight_rows + gemm::kWideOutputs - 1) / gemm::kWideOutputs * ((rows + block_rows - 1) / block_rows);
}

void Gemm(const Launcher& launch, Precision precision, const Matrix& matrix, const GemmRows& rows) {
  switch (matrix.kind) {
    case GemmKind::kNormStore:
      return gemm::Run<GemmKind::kNormStore>(launch, precision, matrix, rows);
    case GemmKind::kNormGated:
      return gemm::Run<GemmKind::kNormGated>(launch, precision, matrix, rows);
    case GemmKind::kAdd:
      return gemm::Run<GemmKind::kAdd>(launch, precision, matrix, rows);
    case GemmKind::kStore:
      return gemm::Run<GemmKind::kStore>(launch, precision, matrix, rows);
    case GemmKind::kStoreSilu:
      return gemm::Run<GemmKind::kStoreSilu>(launch, precision, matrix, rows);
  }
}

void Pack(const Launcher& launch, Precision precision, const Matrix& matrix, PackPart part, DType type,
          const void* source, int64_t first, int64_t rows) {
  const int64_t threads = rows * ((matrix.columns + 7) / 8);
  launch(gemm::PackKernel, dim3(gemm::BlocksFor(threads)), gemm::kPackThreads, 0, precision, matrix.chunks(),
         TileOutputs(matrix.kind), part, type, source, first, rows, matrix.columns, matrix.data);
}

void ConvertRows(const Launcher& launch, Precision precision, DType type, const void* source, int64_t rows,
                 int64_t columns, void* target, int64_t stride) {
  const dim3 grid(std::min(gemm::BlocksFor(rows * columns), 65535U));
  if (precision == Precision::kF32) {
    launch(gemm::ConvertKernel<float>, grid, gemm::kPackThreads, 0, type, source, rows, columns,
           static_cast<float*>(target), stride);
  } else {
    launch(gemm::ConvertKernel<__nv_bfloat16>, grid, gemm::kPackThreads, 0, type, source, rows, columns,
           static_cast<__nv_bfloat16*>(target), stride);
  }
}

}  // namespace qtts::cuda
