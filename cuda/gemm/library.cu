// SPDX-License-Identifier: LGPL-2.1-or-later
#include "base/log.h"
#include "gemm/cublas_lt.h"
#include "gemm/gemm_device.cuh"
#include "gemm/library.h"
#include "rules/norm.cuh"

namespace qtts::cuda::gemm {
namespace {

constexpr int kUnit = 8;  // elements of 16 bytes

// A thread for each unit of the packed matrix: [tile][chunk][half of the tile's rows][row % 8 * 4 + unit of the chunk].
__global__ void __launch_bounds__(kThreads)
    UnpackKernel(int64_t units, int chunks, int halves, const uint4* packed, uint4* plain) {
  constexpr int kUnits = kChunk / kUnit;  // of a row's chunk
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= units) return;
  const int unit = static_cast<int>(i % kUnits);
  const int64_t row_of_half = i / kUnits % 8;
  const int64_t half = i / (kUnits * 8) % halves;
  const int64_t chunk = i / (kUnits * 8 * halves) % chunks;
  const int64_t tile = i / (static_cast<int64_t>(kUnits) * 8 * halves * chunks);
  const int64_t row = (tile * halves + half) * 8 + row_of_half;
  plain[(row * chunks + chunk) * kUnits + unit] = packed[i];
}

// A block per row: the norm as a whole, as nothing of ours is behind the product.
__global__ void __launch_bounds__(kThreads) NormalizeKernel(GemmArguments a, uint2* normed) {
  __shared__ float squares[kWarps];
  const int64_t row = blockIdx.x;
  const bool live = a.live == nullptr || LoadL2(a.live) != 0;
  WaitForPrevious();
  LetNextStart();
  if (!live) return;
  const float* const x = static_cast<const float*>(a.x) + row * a.x_stride;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float square = WarpSquares(x, a.columns, warp, lane);
  if (lane == 0) squares[warp] = square;
  __syncthreads();
  const float factor = NormFactor(squares, 1, a.columns, a.eps);
  const int fours = a.chunks * kChunk / 4;
  for (int i = static_cast<int>(threadIdx.x); i < fours; i += kThreads) {
    const float4 v = __ldcg(reinterpret_cast<const float4*>(x) + i);
    normed[row * fours + i] = NormedFour(__fmul_rn(v.x, factor), __fmul_rn(v.y, factor), __fmul_rn(v.z, factor),
                                         __fmul_rn(v.w, factor), reinterpret_cast<const float4*>(a.norm)[i]);
  }
}

// A thread for each output of a row.
template <GemmKind kKind>
__global__ void __launch_bounds__(kThreads) FinishKernel(GemmArguments a, const float* sums, int sums_stride) {
  const int output = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  const int64_t row = blockIdx.y;
  const bool live = a.live == nullptr || LoadL2(a.live) != 0;
  WaitForPrevious();
  LetNextStart();
  if (!live || output >= a.outputs) return;
  const float* const from = sums + row * sums_stride;
  if constexpr (kKind == GemmKind::kNormGated) {
    // A packed tile of 16 rows has eight gates, then their ups.
    const int at = output / 8 * 16 + output % 8;
    Finish<GemmKind::kStore, __nv_bfloat16>(a, row, output,
                                            Silu<__nv_bfloat16>(LoadL2(from + at)) * LoadL2(from + at + 8), 0);
  } else {
    const float previous =
        kKind == GemmKind::kAdd ? LoadL2(static_cast<const float*>(a.y) + row * a.y_stride + output) : 0;
    Finish<kKind, __nv_bfloat16>(a, row, output, LoadL2(from + output), previous);
  }
}

unsigned BlocksFor(int64_t threads) { return static_cast<unsigned>((threads + kThreads - 1) / kThreads); }

void FinishSums(const Launcher& launch, GemmKind kind, const GemmArguments& a, const float* sums, int sums_stride) {
  const dim3 grid(BlocksFor(a.outputs), static_cast<unsigned>(a.rows));
  switch (kind) {
    case GemmKind::kNormStore:
      return launch(FinishKernel<GemmKind::kNormStore>, grid, kThreads, 0, a, sums, sums_stride);
    case GemmKind::kNormGated:
      return launch(FinishKernel<GemmKind::kNormGated>, grid, kThreads, 0, a, sums, sums_stride);
    case GemmKind::kAdd:
      return launch(FinishKernel<GemmKind::kAdd>, grid, kThreads, 0, a, sums, sums_stride);
    case GemmKind::kStore:
      return launch(FinishKernel<GemmKind::kStore>, grid, kThreads, 0, a, sums, sums_stride);
    case GemmKind::kStoreSilu:
      return launch(FinishKernel<GemmKind::kStoreSilu>, grid, kThreads, 0, a, sums, sums_stride);
  }
}

}  // namespace

void Unpack(const Launcher& launch, const Matrix& matrix, void* plain) {
  const int64_t units = static_cast<int64_t>(matrix.bytes(Precision::kBF16) / sizeof(uint4));
  launch(UnpackKernel, dim3(BlocksFor(units)), kThreads, 0, units, matrix.chunks(), TileOutputs(matrix.kind) / 8,
         static_cast<const uint4*>(matrix.data), static_cast<uint4*>(plain));
}

void RunLibrary(const Launcher& launch, const Matrix& matrix, GemmArguments a, const NormedRows& scratch) {
  const LibraryProduct& library = *matrix.library;
  int64_t x_stride = a.x_stride;
  if (HasNorm(matrix.kind)) {
    launch(NormalizeKernel, dim3(static_cast<unsigned>(a.rows)), kThreads, 0, a, static_cast<uint2*>(scratch.x));
    a.x = scratch.x;
    x_stride = library.columns();
  }
  // Sums that are the results go to their place.
  const bool adds = matrix.kind == GemmKind::kAdd;
  const bool direct =
      (adds || matrix.kind == GemmKind::kNormStore) && a.bias == nullptr && library.outputs() == a.outputs;
  const Status status =
      direct
          ? library.Run(a.rows, matrix.data, a.x, x_stride, static_cast<float*>(a.y), a.y_stride, adds, launch.stream)
          : library.Run(a.rows, matrix.data, a.x, x_stride, scratch.sums, library.outputs(), false, launch.stream);
  if (!status.ok()) {
    Log(LogLevel::kWarning, status.message());
    if (launch.error == cudaSuccess) launch.error = cudaErrorUnknown;
    return;
  }
  if (!direct) FinishSums(launch, matrix.kind, a, scratch.sums, library.outputs());
}

}  // namespace qtts::cuda::gemm
