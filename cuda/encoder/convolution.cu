// SPDX-License-Identifier: LGPL-2.1-or-later
#include <cstdint>

#include "encoder/kernels.h"
#include "runtime/launch.h"

// Convolutions and linear layers as one matrix product over (tap, channel), in F32 on the ordinary cores: what the
// codes are chosen from must not be rounded more than the CPU does it.
namespace qtts::cuda::encoder {
namespace {

constexpr int kThreads = 256;
constexpr int kRows = 64;     // of a block
constexpr int kOuts = 64;     // of a block
constexpr int kDepth = 32;    // terms at a time
constexpr int kOfThread = 4;  // rows, and outputs, of a thread
// Steps that are summed on their own before they join the total, which keeps rounding errors of long sums small.
constexpr int kStepsPerSum = 8;
// Floats of a row in shared memory: rows a thread group apart begin in different banks.
constexpr int kRowStride = kDepth + 4;
constexpr int kRowsPerPass = kThreads / kDepth;
constexpr int kOutsPerPass = kThreads / kOuts;

static_assert(kThreads == (kRows / kOfThread) * (kOuts / kOfThread));

__device__ __forceinline__ float Elu(float x) { return x > 0.0F ? x : expm1f(x); }

__device__ __forceinline__ float Activate(Activation activation, float x) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return x > 0.0F ? x : 0.0F;
    case Activation::kTanhOfRelu:
      return x > 0.0F ? tanhf(x) : 0.0F;
    case Activation::kSigmoid:
      return 1.0F / (1.0F + expf(-x));
    case Activation::kGelu:
      return 0.5F * x * (1.0F + erff(x * 0.707106781F));
    case Activation::kElu:
      return Elu(x);
  }
  return x;
}

// Returns the row of x that position `at` reads, or -1 for zeros.
__device__ __forceinline__ int64_t Within(Border border, int64_t at, int64_t rows) {
  if (at >= 0 && at < rows) return at;
  if (border == Border::kZeros) return -1;
  if (border == Border::kRepeat) return at < 0 ? 0 : rows - 1;
  return at < 0 ? -at : 2 * (rows - 1) - at;
}

// Convolves. A block makes kRows x kOuts values, a thread kOfThread x kOfThread of them; the next step's operands are
// fetched while the present one is computed.
__global__ void __launch_bounds__(kThreads) ConvolveKernel(const __grid_constant__ Convolution a) {
  __shared__ __align__(16) float x_tile[kRows][kRowStride];
  __shared__ __align__(16) float w_tile[kDepth][kOuts];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * kRows;
  const int first_out = static_cast<int>(blockIdx.y) * kOuts;
  const int terms = a.taps * a.in;
  // Elements that the thread fetches: one term of every kRowsPerPass-th row; one output of every kOutsPerPass-th term.
  const int x_term = thread % kDepth;
  const int x_row = thread / kDepth;
  const int w_out = thread % kOuts;
  const int w_term = thread / kOuts;
  // First row and output that it computes.
  const int own_row = thread / (kOuts / kOfThread) * kOfThread;
  const int own_out = thread % (kOuts / kOfThread) * kOfThread;

  float next_x[kRows / kRowsPerPass];
  float next_w[kDepth / kOutsPerPass];
  const auto fetch = [&](int begin) {
    const int k = begin + x_term;
    const int tap = k / a.in;
    const int c = k - tap * a.in;
#pragma unroll
    for (int i = 0; i < kRows / kRowsPerPass; ++i) {
      const int64_t t = first_row + x_row + i * kRowsPerPass;
      float v = 0.0F;
      if (k < terms && t < a.rows) {
        const int64_t from = Within(a.border, t * a.step + static_cast<int64_t>(tap) * a.dilation - a.before, a.x_rows);
        if (from >= 0) {
          v = a.x.data[from * a.x.stride + c];
          if (a.addend.data != nullptr) v += a.addend.data[from * a.addend.stride + c];
          if (a.elu_input) v = Elu(v);
        }
      }
      next_x[i] = v;
    }
#pragma unroll
    for (int i = 0; i < kDepth / kOutsPerPass; ++i) {
      const int term = begin + w_term + i * kOutsPerPass;
      const int o = first_out + w_out;
      next_w[i] = term < terms && o < a.out ? __ldg(a.weights + static_cast<int64_t>(term) * a.out + o) : 0.0F;
    }
  };

  float total[kOfThread][kOfThread] = {};
  float sum[kOfThread][kOfThread] = {};
  fetch(0);
  int steps = 0;
  for (int begin = 0; begin < terms; begin += kDepth) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kRows / kRowsPerPass; ++i) x_tile[x_row + i * kRowsPerPass][x_term] = next_x[i];
#pragma unroll
    for (int i = 0; i < kDepth / kOutsPerPass; ++i) w_tile[w_term + i * kOutsPerPass][w_out] = next_w[i];
    __syncthreads();
    if (begin + kDepth < terms) fetch(begin + kDepth);
#pragma unroll
    for (int k = 0; k < kDepth; k += 4) {
      float x[kOfThread][4];
#pragma unroll
      for (int i = 0; i < kOfThread; ++i) {
        *reinterpret_cast<float4*>(x[i]) = *reinterpret_cast<const float4*>(&x_tile[own_row + i][k]);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float4 w = *reinterpret_cast<const float4*>(&w_tile[k + j][own_out]);
#pragma unroll
        for (int i = 0; i < kOfThread; ++i) {
          sum[i][0] = fmaf(x[i][j], w.x, sum[i][0]);
          sum[i][1] = fmaf(x[i][j], w.y, sum[i][1]);
          sum[i][2] = fmaf(x[i][j], w.z, sum[i][2]);
          sum[i][3] = fmaf(x[i][j], w.w, sum[i][3]);
        }
      }
    }
    if (++steps % kStepsPerSum == 0 || begin + kDepth >= terms) {
#pragma unroll
      for (int i = 0; i < kOfThread; ++i) {
#pragma unroll
        for (int j = 0; j < kOfThread; ++j) {
          total[i][j] += sum[i][j];
          sum[i][j] = 0.0F;
        }
      }
    }
  }

#pragma unroll
  for (int i = 0; i < kOfThread; ++i) {
    const int64_t t = first_row + own_row + i;
    if (t >= a.rows) break;
#pragma unroll
    for (int j = 0; j < kOfThread; ++j) {
      const int o = first_out + own_out + j;
      if (o >= a.out) break;
      float v = total[i][j];
      if (a.bias != nullptr) v += __ldg(a.bias + o);
      if (a.scale != nullptr) v *= __ldg(a.scale + o);
      if (a.residual.data != nullptr) v += a.residual.data[t * a.residual.stride + o];
      a.y.data[t * a.y.stride + o] = Activate(a.activation, v);
    }
  }
}

}  // namespace

cudaError_t Convolve(const Convolution& convolution, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((convolution.rows + kRows - 1) / kRows),
                  static_cast<unsigned>((convolution.out + kOuts - 1) / kOuts));
  return LaunchKernel(ConvolveKernel, grid, kThreads, 0, stream, {}, convolution);
}

}  // namespace qtts::cuda::encoder
