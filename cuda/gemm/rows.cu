// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gemm/gemm_device.cuh"
#include "gemm/rows.h"
#include "gemm/swizzled.h"

namespace qtts::cuda::gemm {
namespace {

// A block per row.
template <RowOrder kOrder>
__global__ void __launch_bounds__(kThreads) NormKernel(GemmArguments a, char* normed, float* factors) {
  __shared__ float squares[kWarps];
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int64_t row = blockIdx.x;
  const ColumnShare share = ShareOfChunks(a.chunks, warp);
  const int begin = share.begin;
  const int columns = share.count * kChunk;
  const bool live = a.live == nullptr || LoadL2(a.live) != 0;

  WaitForPrevious();
  LetNextStart();
  if (!live) return;

  float square = 0;
  for (int c = lane * 4; c - lane * 4 < columns; c += 128) {
    float product = 0;
    if (c < columns) {
      const int at = begin * kChunk + c;
      const uint4 raw = LoadL2(reinterpret_cast<const uint4*>(static_cast<const float*>(a.x) + row * a.x_stride + at));
      const float4 norm = *reinterpret_cast<const float4*>(a.norm + at);
      const float x0 = __uint_as_float(raw.x), x1 = __uint_as_float(raw.y);
      const float x2 = __uint_as_float(raw.z), x3 = __uint_as_float(raw.w);
      product = SumOfSquares(x0, x1, x2, x3);
      const uint2 packed = NormedFour(x0, x1, x2, x3, norm);
      if constexpr (kOrder == RowOrder::kPlain) {
        *reinterpret_cast<uint2*>(normed + (row * a.chunks * kChunk + at) * 2) = packed;
      } else {
        *reinterpret_cast<uint32_t*>(normed + ElementOffset(a.rows, row, at)) = packed.x;
        *reinterpret_cast<uint32_t*>(normed + ElementOffset(a.rows, row, at + 2)) = packed.y;
      }
    }
    square = __fadd_rn(square, WarpSum(product));
  }
  if (lane == 0) squares[warp] = square;
  __syncthreads();
  if (threadIdx.x == 0) factors[row] = NormFactor(squares, 1, a.columns, a.eps);
}

// A thread per chunk: word w of its 16-byte unit i becomes word i of unit w.
__global__ void __launch_bounds__(kThreads) ArrangeKernel(GemmArguments a, char* swizzled) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const bool live = a.live == nullptr || LoadL2(a.live) != 0;
  WaitForPrevious();
  LetNextStart();
  if (!live || i >= a.rows * a.chunks) return;
  const int64_t row = i / a.chunks;
  const int chunk = static_cast<int>(i % a.chunks);
  const auto* const from = reinterpret_cast<const uint4*>(static_cast<const __nv_bfloat16*>(a.x) + row * a.x_stride +
                                                          static_cast<int64_t>(chunk) * kChunk);
  uint4 in[4];
#pragma unroll
  for (int u = 0; u < 4; ++u) in[u] = LoadL2(from + u);
  constexpr int kChunks = kSwizzledColumns / kChunk;
  const auto to = [&](int unit) {
    return reinterpret_cast<uint4*>(swizzled + UnitOffset(a.rows, row, chunk / kChunks, chunk % kChunks * 4 + unit));
  };
  *to(0) = {in[0].x, in[1].x, in[2].x, in[3].x};
  *to(1) = {in[0].y, in[1].y, in[2].y, in[3].y};
  *to(2) = {in[0].z, in[1].z, in[2].z, in[3].z};
  *to(3) = {in[0].w, in[1].w, in[2].w, in[3].w};
}

}  // namespace

void NormRows(const Launcher& launch, const GemmArguments& a, const NormedRows& normed, RowOrder order) {
  launch(order == RowOrder::kPlain ? NormKernel<RowOrder::kPlain> : NormKernel<RowOrder::kSwizzled>,
         dim3(static_cast<unsigned>(a.rows)), kThreads, 0, a, static_cast<char*>(normed.x), normed.factors);
}

void ArrangeRows(const Launcher& launch, const GemmArguments& a, const NormedRows& normed) {
  const int64_t threads = a.rows * a.chunks;
  launch(ArrangeKernel, dim3(static_cast<unsigned>((threads + kThreads - 1) / kThreads)), kThreads, 0, a,
         static_cast<char*>(normed.x));
}

}  // namespace qtts::cuda::gemm
