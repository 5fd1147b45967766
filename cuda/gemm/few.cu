// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>

#include "gemm/few.h"
#include "gemm/gemm_device.cuh"
#include "runtime/async_copy.cuh"
#include "runtime/fragment.h"

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

// Rows that share a block: one, or up to 8.
enum class Rows { kOne, kTile };

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

// Dynamic shared memory: all columns of up to 8 rows.
size_t StageBytes(int chunks, int64_t rows) {
  const int per_warp = ChunksOfShare(chunks);
  return static_cast<size_t>(kWarps) * static_cast<size_t>(rows) * static_cast<size_t>(StageStride(per_warp)) * 2;
}

// Compile-time sizes of a block.
template <GemmKind kProduct, Rows kSharing>
struct FewShape {
  static constexpr GemmKind kKind = kProduct;
  static constexpr Rows kShape = kSharing;
  static constexpr int kRowsUsed = kShape == Rows::kOne ? 1 : kTileRows;
  static constexpr int kOutputs = TileOutputs(kKind);
  static constexpr int kHalves = kOutputs / 8;
  static constexpr int kAhead = ChunksAhead(kKind);
  static constexpr int kBehind = ChunksBehind(kKind);
  static constexpr int kPerLane = HasNorm(kKind) ? 4 : 8;  // elements of x in 16 bytes
  static constexpr int kSpan = 32 * kPerLane;              // columns that a warp brings in at once
};

// Brings a warp's columns of the rows to its stage, and sums their squares for the norm kinds.
template <typename Shape>
class RowStager {
 public:
  // `share`: the warp's chunks. The column of x, from the warp's first, with which this lane begins, is known before
  // the rows are there, and so is its norm.
  __device__ __forceinline__ RowStager(const GemmArguments& arguments, __nv_bfloat16* stage, int stride,
                                       int64_t first_row, int rows, const ColumnShare& share, int lane)
      : a(arguments),
        stage_(stage),
        stride_(stride),
        first_row_(first_row),
        rows_(rows),
        begin_(share.begin),
        columns_(share.count * kChunk),
        column_(lane * Shape::kPerLane),
        lane_(lane),
        first_norm_(NormAt(column_)) {}

  // Returns the row's part of the sum of squares, TransposedRow(lane)'s.
  __device__ __forceinline__ float Run() const {
    constexpr int kTogether = SpansTogether(Shape::kShape);
    float square = 0;
#pragma unroll 2
    for (int first = column_; first - column_ < columns_; first += kTogether * Shape::kSpan) {
      uint4 raw[kTogether][Shape::kRowsUsed];
#pragma unroll
      for (int s = 0; s < kTogether; ++s) {
        const int c = first + s * Shape::kSpan;
        if (c - column_ < columns_) Fetch(c, raw[s]);
      }
#pragma unroll
      for (int s = 0; s < kTogether; ++s) {
        const int c = first + s * Shape::kSpan;
        if (c - column_ < columns_) Bring(raw[s], c, c == column_ ? first_norm_ : NormAt(c), &square);
      }
    }
    __syncwarp();
    return square;
  }

 private:
  __device__ __forceinline__ float4 NormAt(int c) const {
    return HasNorm(Shape::kKind) && c < columns_ ? *reinterpret_cast<const float4*>(a.norm + begin_ * kChunk + c)
                                                 : float4{};
  }

  // Asks for a span of the rows, from column `c` on.
  __device__ __forceinline__ void Fetch(int c, uint4* raw) const {
    const bool mine = c < columns_;
#pragma unroll
    for (int r = 0; r < Shape::kRowsUsed; ++r) {
      raw[r] = {};
      if (mine && r < rows_) {
        const int64_t at = (first_row_ + r) * a.x_stride + begin_ * kChunk + c;
        raw[r] = LoadL2(reinterpret_cast<const uint4*>(static_cast<const char*>(a.x) + at * (16 / Shape::kPerLane)));
      }
    }
  }

  // Brings it to the stage.
  __device__ __forceinline__ void Bring(const uint4* raw, int c, float4 norm, float* square) const {
    const bool mine = c < columns_;
    float products[kTileRows] = {};
#pragma unroll
    for (int r = 0; r < Shape::kRowsUsed; ++r) {
      if constexpr (HasNorm(Shape::kKind)) {
        const float x0 = __uint_as_float(raw[r].x), x1 = __uint_as_float(raw[r].y);
        const float x2 = __uint_as_float(raw[r].z), x3 = __uint_as_float(raw[r].w);
        products[r] = SumOfSquares(x0, x1, x2, x3);
        const uint2 packed = NormedFour(x0, x1, x2, x3, norm);
        if (mine && r < rows_) *reinterpret_cast<uint2*>(stage_ + r * stride_ + c) = packed;
      } else {
        if (mine && r < rows_) *reinterpret_cast<uint4*>(stage_ + r * stride_ + c) = raw[r];
      }
    }
    if constexpr (HasNorm(Shape::kKind)) {
      // For one row the same additions as for row 0 of eight.
      *square += Shape::kRowsUsed == 1 ? WarpSum(products[0]) : TransposedSum(products, lane_);
    }
  }

  const GemmArguments& a;
  __nv_bfloat16* const stage_;
  const int stride_;
  const int64_t first_row_;
  const int rows_, begin_, columns_, column_, lane_;
  const float4 first_norm_;
};

// Finishes the outputs of a block's rows from the warps' sums, [warp][row][output], and squares.
template <typename Shape>
__device__ __forceinline__ void FinishOutputs(const GemmArguments& a, int64_t first_row, int rows, float previous,
                                              const float* partial, const float (&squares)[kWarps][kTileRows]) {
  constexpr GemmKind kKind = Shape::kKind;
  constexpr int kOutputs = Shape::kOutputs;
  constexpr int kValues = kKind == GemmKind::kNormGated ? 8 : kOutputs;
  for (int i = threadIdx.x; i < kValues * rows; i += kThreads) {
    const int m = i % kValues;
    const int n = i / kValues;
    float factor = 1;
    if constexpr (HasNorm(kKind)) factor = NormFactor(&squares[0][n], kTileRows, a.columns, a.eps);
    const auto total = [&](int output) {
      return SumOfShares(partial + n * kOutputs + output, kTileRows * kOutputs, factor);
    };
    const int64_t row = first_row + n;
    if constexpr (kKind == GemmKind::kNormGated) {
      const int output = blockIdx.x * 8 + m;
      if (output < a.outputs) {
        const float value = Silu<__nv_bfloat16>(total(m)) * total(m + 8);
        static_cast<__nv_bfloat16*>(a.y)[row * a.y_stride + output] = FromFloat<__nv_bfloat16>(value);
      }
    } else {
      Finish<kKind, __nv_bfloat16>(a, row, blockIdx.x * kOutputs + m, total(m), previous);
    }
  }
}

// One tile of outputs, in BF16. Each warp has an eighth of the chunks of columns and keeps kAhead of
// them in flight in registers; at the beginning, before there are rows, kBehind more to shared memory.
template <GemmKind kKind, Rows kShape>
__global__ void __launch_bounds__(kThreads, BlocksTogether(kShape)) Bf16Kernel(GemmArguments a) {
  using Shape = FewShape<kKind, kShape>;
  constexpr int kHalves = Shape::kHalves;
  constexpr int kAhead = Shape::kAhead;
  constexpr int kBehind = Shape::kBehind;
  constexpr int kOutputs = Shape::kOutputs;
  __shared__ __align__(16) float partial[kWarps * kTileRows * kOutputs];
  extern __shared__ __align__(16) unsigned char whole_stage[];
  __shared__ float squares[kWarps][kTileRows];
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;

  const int per_warp = ChunksOfShare(a.chunks);
  const ColumnShare share = ShareOfChunks(a.chunks, warp);
  const int count = share.count;
  const uint4* const weights = static_cast<const uint4*>(a.weights) +
                               (static_cast<int64_t>(blockIdx.x) * a.chunks + share.begin) * (32 * kHalves) + lane;
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kTileRows;
  const int rows = static_cast<int>(min(static_cast<int64_t>(kTileRows), a.rows - first_row));
  const int stride = StageStride(per_warp);
  auto* const stage = reinterpret_cast<__nv_bfloat16*>(whole_stage) + warp * rows * stride;
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
  const RowStager<Shape> stager(a, stage, stride, first_row, rows, share, lane);
  float previous = 0;  // of kAdd: what this thread adds to
  if (kKind == GemmKind::kAdd) {
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

  const float square = stager.Run();
  if constexpr (kBehind > 0) AwaitCopies<0>();
  float sums[4] = {};
  const __nv_bfloat16* const own_x = stage + UnitFragment::Row(lane) * stride + UnitFragment::Column(lane);
  const bool has_row = UnitFragment::Row(lane) < rows && UnitFragment::Row(lane) < Shape::kRowsUsed;
  for (int base = 0; base < count; base += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (base + i >= count) continue;
      uint4 x = {};
      if (has_row) x = *reinterpret_cast<const uint4*>(own_x + (base + i) * kChunk);
      MultiplyChunk(sums, w[i][0], kHalves == 2 ? w[i][kHalves - 1] : uint4{}, x);
      if (base + kAhead + i < count) {
#pragma unroll
        for (int h = 0; h < kHalves; ++h) {
          w[i][h] = base + i < kBehind ? behind[(base + i) * kThreads]
                                       : Streamed(weights + ((base + kAhead + i) * kHalves + h) * 32);
        }
      }
    }
  }

#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float* const out =
        partial + (warp * kTileRows + SumFragment::Column(lane, i)) * kOutputs + SumFragment::Row(lane, 0);
    out[0] = sums[i];
    if (kHalves == 2) out[8] = sums[2 + i];
  }
  if (HasNorm(kKind) && lane % 4 == 0) squares[warp][TransposedRow(lane)] = square;
  __syncthreads();
  FinishOutputs<Shape>(a, first_row, rows, previous, partial, squares);
}

template <GemmKind kKind>
void Run(const Launcher& launch, int tiles, const GemmArguments& a) {
  const size_t stage = StageBytes(a.chunks, std::min<int64_t>(a.rows, 8));
  const int left = ChunksOfShare(a.chunks) - ChunksAhead(kKind);
  const size_t shared = stage + static_cast<size_t>(std::clamp(left, 0, ChunksBehind(kKind)) * kWarps * kChunkBytes);
  const int64_t rows = a.rows == 1 ? 1 : kTileRows;
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>((a.rows + rows - 1) / rows));
  launch(rows == 1 ? Bf16Kernel<kKind, Rows::kOne> : Bf16Kernel<kKind, Rows::kTile>, grid, kThreads, shared, a);
}

}  // namespace

size_t FewStageBytes(int chunks, int64_t rows) { return StageBytes(chunks, rows); }

void RunFew(const Launcher& launch, GemmKind kind, int tiles, const GemmArguments& a) {
  switch (kind) {
    case GemmKind::kNormStore:
      return Run<GemmKind::kNormStore>(launch, tiles, a);
    case GemmKind::kNormGated:
      return Run<GemmKind::kNormGated>(launch, tiles, a);
    case GemmKind::kAdd:
      return Run<GemmKind::kAdd>(launch, tiles, a);
    case GemmKind::kStore:
      return Run<GemmKind::kStore>(launch, tiles, a);
    case GemmKind::kStoreSilu:
      return Run<GemmKind::kStoreSilu>(launch, tiles, a);
  }
}

}  // namespace qtts::cuda::gemm
