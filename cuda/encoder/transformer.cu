// SPDX-License-Identifier: LGPL-2.1-or-later
#include <cstddef>
#include <cstdint>

#include "encoder/kernels.h"
#include "runtime/launch.h"

namespace qtts::cuda::encoder {
namespace {

constexpr int kWarp = 32;

// Joins a value of each of a block's kThreads threads in a fixed order; every thread gets the result.
template <int kThreads, typename Join>
__device__ float JoinBlock(float v, const Join& join) {
  __shared__ float parts[kThreads / kWarp];
#pragma unroll
  for (int i = kWarp / 2; i > 0; i /= 2) v = join(v, __shfl_xor_sync(0xffffffffU, v, i));
  __syncthreads();
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = v;
  __syncthreads();
  float all = parts[0];
  for (int i = 1; i < kThreads / kWarp; ++i) all = join(all, parts[i]);
  return all;
}

template <int kThreads>
__device__ float SumBlock(float v) {
  return JoinBlock<kThreads>(v, [](float x, float y) { return x + y; });
}

constexpr int kNormThreads = 128;

// Normalises, a block per row.
__global__ void __launch_bounds__(kNormThreads) NormKernel(const __grid_constant__ LayerNorm a) {
  const float* const x = a.x.data + static_cast<int64_t>(blockIdx.x) * a.x.stride;
  float* const y = a.y.data + static_cast<int64_t>(blockIdx.x) * a.y.stride;
  float sum = 0;
  for (int c = static_cast<int>(threadIdx.x); c < a.channels; c += kNormThreads) sum += x[c];
  const float mean = SumBlock<kNormThreads>(sum) / static_cast<float>(a.channels);
  float squares = 0;
  for (int c = static_cast<int>(threadIdx.x); c < a.channels; c += kNormThreads) {
    squares = fmaf(x[c] - mean, x[c] - mean, squares);
  }
  const float variance = SumBlock<kNormThreads>(squares) / static_cast<float>(a.channels);
  const float inverse = 1.0F / sqrtf(variance + a.eps);
  for (int c = static_cast<int>(threadIdx.x); c < a.channels; c += kNormThreads) {
    y[c] = fmaf((x[c] - mean) * inverse, __ldg(a.weight + c), __ldg(a.bias + c));
  }
}

constexpr int kRotateThreads = 256;

// Applies RoPE, a thread per pair of a query or a key.
__global__ void __launch_bounds__(kRotateThreads) RotateKernel(const __grid_constant__ Attention a) {
  const int half = a.head_dim / 2;
  const int64_t pairs = int64_t{2} * a.heads * half;  // of a row
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kRotateThreads + threadIdx.x;
  if (e >= a.rows * pairs) return;
  const int64_t t = e / pairs;
  const auto pair = static_cast<int>(e - t * pairs);
  const int head = pair / half;  // of queries, then of keys
  const int i = pair - head * half;
  float sine = 0;
  float cosine = 0;
  sincosf(static_cast<float>(t) * __ldg(a.speeds + i), &sine, &cosine);
  float* const at = a.qkv.data + t * a.qkv.stride + static_cast<int64_t>(head) * a.head_dim + i;
  const float x = at[0];
  const float y = at[half];
  at[0] = x * cosine - y * sine;
  at[half] = y * cosine + x * sine;
}

constexpr int kAttendThreads = 128;
constexpr int kLanesPerKey = 8;
constexpr int kKeysAtOnce = kAttendThreads / kLanesPerKey;
// Shared memory that a block may use without raising the limit, and some for static arrays.
constexpr size_t kSharedBytes = size_t{46} << 10;

// Returns the floats of shared memory beside the scores.
__host__ __device__ int FixedFloats(int head_dim) {
  return head_dim + (head_dim > kAttendThreads ? head_dim : kAttendThreads);
}

// Attends, a block per row and head.
__global__ void __launch_bounds__(kAttendThreads) AttendKernel(const __grid_constant__ Attention a) {
  extern __shared__ float shared[];
  float* const q = shared;                                 // [head_dim]
  float* const parts = q + a.head_dim;                     // [groups][head_dim]
  float* const scores = shared + FixedFloats(a.head_dim);  // [row + 1]
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t row = blockIdx.x;
  const int64_t offset = static_cast<int64_t>(blockIdx.y) * a.head_dim;
  const int64_t width = static_cast<int64_t>(a.heads) * a.head_dim;
  const float* const keys = a.qkv.data + width + offset;
  const float* const values = keys + width;
  const auto count = static_cast<int>(row + 1);
  for (int d = thread; d < a.head_dim; d += kAttendThreads) q[d] = a.qkv.data[row * a.qkv.stride + offset + d];
  __syncthreads();

  const float scale = 1.0F / sqrtf(static_cast<float>(a.head_dim));
  const int lane = thread % kLanesPerKey;
  for (int first = 0; first < count; first += kKeysAtOnce) {
    const int at = first + thread / kLanesPerKey;
    const float* const key = keys + static_cast<int64_t>(at < count ? at : count - 1) * a.qkv.stride;
    float sum = 0;
    for (int d = lane; d < a.head_dim; d += kLanesPerKey) sum = fmaf(q[d], key[d], sum);
#pragma unroll
    for (int i = kLanesPerKey / 2; i > 0; i /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, i);
    if (lane == 0 && at < count) scores[at] = sum * scale;
  }
  __syncthreads();
  float largest = scores[0];
  for (int i = thread; i < count; i += kAttendThreads) largest = fmaxf(largest, scores[i]);
  largest = JoinBlock<kAttendThreads>(largest, [](float x, float y) { return fmaxf(x, y); });
  float sum = 0;
  for (int i = thread; i < count; i += kAttendThreads) {
    scores[i] = expf(scores[i] - largest);
    sum += scores[i];
  }
  sum = SumBlock<kAttendThreads>(sum);

  // Thread group g takes keys g, g + groups, …
  const int groups = a.head_dim < kAttendThreads ? kAttendThreads / a.head_dim : 1;
  for (int e = thread; e < groups * a.head_dim; e += kAttendThreads) {
    const int g = e / a.head_dim;
    const int d = e - g * a.head_dim;
    float y = 0;
    for (int i = g; i < count; i += groups) y = fmaf(scores[i], values[static_cast<int64_t>(i) * a.qkv.stride + d], y);
    parts[e] = y;
  }
  __syncthreads();
  for (int d = thread; d < a.head_dim; d += kAttendThreads) {
    float y = parts[d];
    for (int g = 1; g < groups; ++g) y += parts[g * a.head_dim + d];
    a.y.data[row * a.y.stride + offset + d] = y / sum;
  }
}

}  // namespace

cudaError_t Normalize(const LayerNorm& norm, cudaStream_t stream) {
  return LaunchKernel(NormKernel, dim3(static_cast<unsigned>(norm.rows)), kNormThreads, 0, stream, {}, norm);
}

cudaError_t Rotate(const Attention& attention, cudaStream_t stream) {
  const int64_t pairs = attention.rows * attention.heads * attention.head_dim;
  const auto blocks = static_cast<unsigned>((pairs + kRotateThreads - 1) / kRotateThreads);
  return LaunchKernel(RotateKernel, dim3(blocks), kRotateThreads, 0, stream, {}, attention);
}

int64_t MaxAttentionRows(int head_dim) {
  return static_cast<int64_t>(kSharedBytes / sizeof(float)) - FixedFloats(head_dim);
}

cudaError_t Attend(const Attention& attention, cudaStream_t stream) {
  const size_t shared =
      (static_cast<size_t>(FixedFloats(attention.head_dim)) + static_cast<size_t>(attention.rows)) * sizeof(float);
  const dim3 grid(static_cast<unsigned>(attention.rows), static_cast<unsigned>(attention.heads));
  return LaunchKernel(AttendKernel, grid, kAttendThreads, shared, stream, {}, attention);
}

}  // namespace qtts::cuda::encoder
