// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>

#include "gemm/few.h"
#include "gemm/few_block.cuh"
#include "gemm/int8.cuh"
#include "gemm/int8.h"

namespace qtts::cuda::gemm {
namespace {

template <int kHalves>
struct Int8Words;
template <>
struct Int8Words<1> {
  using Codes = uint2;
  using Scales = uint16_t;
};
template <>
struct Int8Words<2> {
  using Codes = uint4;
  using Scales = uint32_t;  // of a row and of the eighth after it
};

// Past L1, as Streamed().
__device__ __forceinline__ uint4 StreamedCodes(const uint4* p) { return Streamed(p); }
__device__ __forceinline__ uint2 StreamedCodes(const uint2* p) {
  uint2 v;
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
  return v;
}

// A lane's part of a chunk's weights: rows 0 to 7 of the tile, and from 8 on if there are as many.
struct Int8Chunk {
  uint4 low, high;
};

// A warp's weights of 8 bits: the next kAhead chunks in registers. Scales come for four chunks by one load: lane l has
// those of row l / 4 in chunk l % 4 of the four.
template <typename Shape>
class Int8Weights {
 public:
  __device__ __forceinline__ Int8Weights(const GemmArguments& a, const ColumnShare& share, int lane)
      : count_(share.count), lane_(lane) {
    const int64_t first = static_cast<int64_t>(blockIdx.x) * a.chunks + share.begin;
    const char* const chunk = static_cast<const char*>(a.weights) + first * kChunkBytes;
    codes_ = chunk + lane * static_cast<int>(sizeof(Codes));
    scales_ = chunk + lane % kTogether * kChunkBytes + kHalves * Int8Layout::kCodeBytes +
              lane / kTogether * static_cast<int>(sizeof(Scales));
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (i < count_) w_[i] = LoadCodes(i);
    }
#pragma unroll
    for (int i = 0; i < kAhead; i += kTogether) LoadScales(i, 0);
  }

  __device__ __forceinline__ Int8Chunk Take(int i) const {
    const uint32_t scales = __shfl_sync(~0U, s_[i / kTogether], lane_ / kTogether * kTogether + i % kTogether);
    if constexpr (kHalves == 2) {
      return {UnpackInt8({w_[i].x, w_[i].y}, LowInt8Factor(scales)),
              UnpackInt8({w_[i].z, w_[i].w}, HighInt8Factor(scales))};
    } else {
      return {UnpackInt8(w_[i], LowInt8Factor(scales)), {}};
    }
  }

  // Loads the chunk that comes kAhead after `base` + `i`.
  __device__ __forceinline__ void Refill(int base, int i) {
    if (base + kAhead + i < count_) w_[i] = LoadCodes(base + kAhead + i);
    if (i % kTogether == kTogether - 1) LoadScales(i - (kTogether - 1), base + kAhead);
  }

 private:
  static constexpr int kHalves = Shape::kHalves;
  static constexpr int kAhead = Shape::kAhead;
  static constexpr int kTogether = 4;
  static constexpr int kChunkBytes = kHalves * Int8Layout::kChunkBytes;
  static_assert(kAhead % kTogether == 0);
  using Codes = typename Int8Words<kHalves>::Codes;
  using Scales = typename Int8Words<kHalves>::Scales;

  __device__ __forceinline__ Codes LoadCodes(int chunk) const {
    return StreamedCodes(reinterpret_cast<const Codes*>(codes_ + chunk * kChunkBytes));
  }
  // Loads the scales of the four chunks from place `i` on, of chunks from `base` on.
  __device__ __forceinline__ void LoadScales(int i, int base) {
    const auto* const scales = reinterpret_cast<const Scales*>(scales_ + (base + i) * kChunkBytes);
    s_[i / kTogether] = base + i + lane_ % kTogether < count_ ? __ldg(scales) : Scales{};
  }

  const int count_, lane_;
  const char* codes_;   // of the lane, at the share's first chunk
  const char* scales_;  // the same
  Codes w_[kAhead];
  uint32_t s_[kAhead / kTogether];
};

// One tile of outputs, as Bf16Kernel in few.cu: each warp has an eighth of the chunks of columns.
template <GemmKind kKind, Rows kShape>
__global__ void __launch_bounds__(kThreads, BlocksTogether(kShape)) Int8Kernel(GemmArguments a) {
  using Shape = FewShape<kKind, kShape, WeightForm::kInt8>;
  constexpr int kHalves = Shape::kHalves;
  constexpr int kAhead = Shape::kAhead;
  constexpr int kOutputs = Shape::kOutputs;
  __shared__ __align__(16) float partial[kWarps * kTileRows * kOutputs];
  extern __shared__ __align__(16) unsigned char whole_stage[];
  __shared__ float squares[kWarps][kTileRows];
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;

  const int per_warp = ChunksOfShare(a.chunks);
  const ColumnShare share = ShareOfChunks(a.chunks, warp);
  const int count = share.count;
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kTileRows;
  const int rows = static_cast<int>(min(static_cast<int64_t>(kTileRows), a.rows - first_row));
  const int stride = StageStride(per_warp);
  auto* const stage = reinterpret_cast<__nv_bfloat16*>(whole_stage) + warp * rows * stride;
  Int8Weights<Shape> weights(a, share, lane);
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
  float sums[4] = {};
  const __nv_bfloat16* const own_x = stage + UnitFragment::Row(lane) * stride + UnitFragment::Column(lane);
  const bool has_row = UnitFragment::Row(lane) < rows && UnitFragment::Row(lane) < Shape::kRowsUsed;
  for (int base = 0; base < count; base += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (base + i >= count) continue;
      uint4 x = {};
      if (has_row) x = *reinterpret_cast<const uint4*>(own_x + (base + i) * kChunk);
      const Int8Chunk w = weights.Take(i);
      MultiplyChunk(sums, w.low, w.high, x);
      weights.Refill(base, i);
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
  const int64_t rows = a.rows == 1 ? 1 : kTileRows;
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>((a.rows + rows - 1) / rows));
  launch(rows == 1 ? Int8Kernel<kKind, Rows::kOne> : Int8Kernel<kKind, Rows::kTile>, grid, kThreads,
         StageBytes(a.chunks, std::min<int64_t>(a.rows, kTileRows)), a);
}

}  // namespace

void RunFewInt8(const Launcher& launch, GemmKind kind, int tiles, const GemmArguments& a) {
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
