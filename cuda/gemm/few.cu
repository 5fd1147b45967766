// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>

#include "gemm/few.h"
#include "gemm/few_block.cuh"

namespace qtts::cuda::gemm {
namespace {

// One tile of outputs, in BF16. Each warp has an eighth of the chunks of columns and keeps kAhead of
// them in flight in registers; at the beginning, before there are rows, kBehind more to shared memory.
template <GemmKind kKind, Rows kShape>
__global__ void __launch_bounds__(kThreads, BlocksTogether(kShape)) Bf16Kernel(GemmArguments a) {
  using Shape = FewShape<kKind, kShape, WeightForm::kPlain>;
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
  const int left = ChunksOfShare(a.chunks) - ChunksAhead(kKind, WeightForm::kPlain);
  const size_t shared =
      stage + static_cast<size_t>(std::clamp(left, 0, ChunksBehind(kKind, WeightForm::kPlain)) * kWarps * kChunkBytes);
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
