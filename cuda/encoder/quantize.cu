// SPDX-License-Identifier: LGPL-2.1-or-later
#include <cstddef>
#include <cstdint>

#include "encoder/kernels.h"
#include "runtime/launch.h"

namespace qtts::cuda::encoder {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarp = 32;
// Terms that are summed on their own, as in convolution.cu.
constexpr int kTermsPerSum = 64;

struct Candidate {
  float distance;
  int entry;
};

// Returns the nearer of two, the first of equals.
__device__ __forceinline__ Candidate Nearer(Candidate a, Candidate b) {
  return b.distance < a.distance || (b.distance == a.distance && b.entry < a.entry) ? b : a;
}

// Quantises, a block per frame: group after group, each thread with every kThreads-th codeword.
__global__ void __launch_bounds__(kThreads) QuantizeKernel(const __grid_constant__ Quantization a) {
  extern __shared__ float residual[];  // [dim]
  __shared__ Candidate nearest[kThreads / kWarp];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t frame = blockIdx.x;
  for (int group = 0; group < a.groups; ++group) {
    const float* const codewords = a.codewords + static_cast<int64_t>(group) * a.dim * a.entries;
    const float* const squares = a.squares + static_cast<int64_t>(group) * a.entries;
    if (group <= 1) {
      // The acoustic codebooks start from their own vector, not from the semantic one's residual.
      const float* const from = (group == 0 ? a.semantic : a.acoustic) + frame * a.dim;
      for (int i = thread; i < a.dim; i += kThreads) residual[i] = from[i];
    }
    __syncthreads();
    Candidate best = {__int_as_float(0x7f800000), 0};
    for (int e = thread; e < a.entries; e += kThreads) {
      float product = 0;
      for (int first = 0; first < a.dim; first += kTermsPerSum) {
        const int end = first + kTermsPerSum < a.dim ? first + kTermsPerSum : a.dim;
        float sum = 0;
#pragma unroll 8
        for (int i = first; i < end; ++i) {
          sum = fmaf(residual[i], __ldg(codewords + static_cast<int64_t>(i) * a.entries + e), sum);
        }
        product += sum;
      }
      // The squared distance less the frame's own square, which is the same for all.
      best = Nearer(best, {__fsub_rn(__ldg(squares + e), 2.0F * product), e});
    }
#pragma unroll
    for (int i = kWarp / 2; i > 0; i /= 2) {
      best =
          Nearer(best, {__shfl_down_sync(0xffffffffU, best.distance, i), __shfl_down_sync(0xffffffffU, best.entry, i)});
    }
    if (thread % kWarp == 0) nearest[thread / kWarp] = best;
    __syncthreads();
    best = nearest[0];
    for (int i = 1; i < kThreads / kWarp; ++i) best = Nearer(best, nearest[i]);
    if (thread == 0) a.codes[frame * a.groups + group] = best.entry;
    for (int i = thread; i < a.dim; i += kThreads) {
      residual[i] -= codewords[static_cast<int64_t>(i) * a.entries + best.entry];
    }
    // The next group writes `nearest` only behind its first barrier, which all pass after reading it here.
  }
}

}  // namespace

cudaError_t Quantize(const Quantization& quantization, cudaStream_t stream) {
  // Whole groups of 16 bytes and more, in which the unrolled sums load them.
  constexpr size_t kGroup = 32;
  const size_t shared = (static_cast<size_t>(quantization.dim) + kGroup - 1) / kGroup * kGroup * sizeof(float);
  return LaunchKernel(QuantizeKernel, dim3(static_cast<unsigned>(quantization.frames)), kThreads, shared, stream, {},
                      quantization);
}

}  // namespace qtts::cuda::encoder
