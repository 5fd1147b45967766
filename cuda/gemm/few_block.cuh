// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_GEMM_FEW_BLOCK_CUH_
#define QTTS_CUDA_GEMM_FEW_BLOCK_CUH_

#include <algorithm>

#include "gemm/few.h"
#include "gemm/gemm_device.cuh"
#include "runtime/async_copy.cuh"
#include "runtime/fragment.h"

// Parts of a block of the products of few rows, for both forms of the weights.
namespace qtts::cuda::gemm {

// Adds each of v[0..8) up over the warp; lane l gets the sum of v[TransposedRow(l)].
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

// Returns the minimum of thread blocks per SM, by register use: those for one row must overlap the next kernel's.
constexpr int BlocksTogether(Rows rows) { return rows == Rows::kOne ? 4 : 2; }

// Returns the chunks of a warp in flight in registers.
constexpr int ChunksAhead(GemmKind kind, WeightForm form) {
  const bool whole_tile = TileOutputs(kind) == 16;
  if (form == WeightForm::kInt8) return whole_tile ? 8 : 12;
  return whole_tile ? 4 : 8;
}
// Returns the maximum of chunks of a warp loaded into shared memory meanwhile; more would need more registers.
constexpr int ChunksBehind(GemmKind kind, WeightForm form) {
  return TileOutputs(kind) == 16 || form == WeightForm::kInt8 ? 0 : 8;
}
constexpr int kChunkBytes = 512;  // of a chunk of 8 outputs in BF16

// Returns the spans of columns of x that a warp loads at once.
constexpr int SpansTogether(Rows rows) { return rows == Rows::kOne ? 2 : 1; }

// Returns the elements between staged rows: no bank conflicts between the rows of a fragment.
__host__ __device__ constexpr int StageStride(int chunks) { return (chunks + 1 - chunks % 2) * kChunk; }

// Returns the dynamic shared memory: all columns of up to 8 rows.
inline size_t StageBytes(int chunks, int64_t rows) {
  const int per_warp = ChunksOfShare(chunks);
  return static_cast<size_t>(kWarps) * static_cast<size_t>(rows) * static_cast<size_t>(StageStride(per_warp)) * 2;
}

// Compile-time sizes of a block.
template <GemmKind kProduct, Rows kSharing, WeightForm kForm>
struct FewShape {
  static constexpr GemmKind kKind = kProduct;
  static constexpr Rows kShape = kSharing;
  static constexpr int kRowsUsed = kShape == Rows::kOne ? 1 : kTileRows;
  static constexpr int kOutputs = TileOutputs(kKind);
  static constexpr int kHalves = kOutputs / 8;
  static constexpr int kAhead = ChunksAhead(kKind, kForm);
  static constexpr int kBehind = ChunksBehind(kKind, kForm);
  static constexpr int kPerLane = HasNorm(kKind) ? 4 : 8;  // elements of x in 16 bytes
  static constexpr int kSpan = 32 * kPerLane;              // columns that a warp brings in at once
};

// Brings a warp's columns of the rows to its stage, and sums their squares for the norm kinds.
template <typename Shape>
class RowStager {
 public:
  // Stages the columns of `share`, the warp's chunks. The column of x, from the warp's first, with which this lane
  // begins, is known before the rows are there, and so is its norm.
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

}  // namespace qtts::cuda::gemm

#endif  // QTTS_CUDA_GEMM_FEW_BLOCK_CUH_
