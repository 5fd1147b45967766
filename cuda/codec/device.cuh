// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CODEC_DEVICE_CUH_
#define QTTS_CUDA_CODEC_DEVICE_CUH_

#include <cuda_fp16.h>

#include <cstdint>

#include "codec/kernels.h"
#include "runtime/launch.h"
#include "runtime/overlap.cuh"
#include "runtime/warp.cuh"

// Common code of the codec's kernels. Activations are read past L1: kernels overlap at their ends, and L1 may hold data
// of the kernel before the previous one.
//
// Kernels of a call form a chain in which later ones start while earlier ones still run, each ending only after its
// predecessor (runtime/overlap.cuh). Before its wait a kernel runs beside several predecessors. Until then it may read
// weights, the past of the streams (as of the call before) and the Batch, which the call's first kernel writes before
// it lets others start; it may touch nothing that another kernel of the call writes. Every thread waits before it
// touches anything else, and no block ends without the wait.
namespace qtts::cuda::codec {

__device__ __forceinline__ int Divide(int n, const Divisor& by) {
  return by.magic == 0 ? n : static_cast<int>(__umulhi(static_cast<uint32_t>(n), by.magic));
}

__device__ __forceinline__ std::byte* LoadState(std::byte* const* states, int i) {
  return reinterpret_cast<std::byte*>(__ldcg(reinterpret_cast<const unsigned long long*>(states + i)));
}

// Returns the row `lag` steps before row `t` of batch row b, or null where the stream had not begun.
template <typename T>
__device__ __forceinline__ const T* SourceRow(const Source& s, int b, int t, int lag, const std::byte* state,
                                              int frame) {
  const T* const data = static_cast<const T*>(s.data);
  const int u = t - lag;
  if (u >= 0) return data + (static_cast<int64_t>(b) * s.rows + u) * s.channels;
  const int back = Divide(-u + s.rows - 1, s.by_rows);
  if (frame < back) return nullptr;
  const int row = u + back * s.rows - (s.rows - s.keep);
  const int64_t at = static_cast<int64_t>((frame - back) % s.ring) * s.keep + row;
  return reinterpret_cast<const T*>(state + s.history) + at * s.channels;
}

// Computes sin^2, of period pi: reduced in two steps, exact to F32 rounding for |x| up to some 10^5.
__device__ __forceinline__ float SinSquared(float x) {
  const float k = rintf(x * 0.318309886F);
  float r = fmaf(-k, 3.14159274F, x);
  r = fmaf(-k, -8.74227766e-8F, r);
  const float z = r * r;
  float p = fmaf(z, -2.38895923e-8F, 2.75256264e-6F);
  p = fmaf(z, p, -1.98408743e-4F);
  p = fmaf(z, p, 8.33333105e-3F);
  p = fmaf(z, p, -1.66666672e-1F);
  const float s = fmaf(r * z, p, r);
  return s * s;
}

// Computes the same for results that are rounded to F16: by the sine of the special function unit, whose error of 2^-21
// and of |x| 2^-24 is far below that of an argument made of F16, for a quarter of the instructions.
__device__ __forceinline__ float ApproximateSinSquared(float x) {
  const float s = __sinf(x);
  return s * s;
}

// Applies SnakeBeta. kApproximate: for results that are rounded to one F16.
template <bool kApproximate>
__device__ __forceinline__ float4 Snake(float4 v, float4 a, float4 inverse_b) {
  const auto sin_squared = [](float x) { return kApproximate ? ApproximateSinSquared(x) : SinSquared(x); };
  v.x = fmaf(inverse_b.x, sin_squared(a.x * v.x), v.x);
  v.y = fmaf(inverse_b.y, sin_squared(a.y * v.y), v.y);
  v.z = fmaf(inverse_b.z, sin_squared(a.z * v.z), v.z);
  v.w = fmaf(inverse_b.w, sin_squared(a.w * v.w), v.w);
  return v;
}

// Rounds to nearest; beyond the range, to the largest number instead of infinity (NaN stays).
__device__ __forceinline__ __half2 ToHalf2(float x, float y) {
  const __half2 largest = __half2half2(__ushort_as_half(0x7bff));  // 65504
  return __hmin2_nan(__hmax2_nan(__floats2half2_rn(x, y), __hneg2(largest)), largest);
}

// Return four values as F16, and the rounding errors of that, as F16:
__device__ __forceinline__ uint2 HighHalves(float4 v) {
  const __half2 pair[2] = {ToHalf2(v.x, v.y), ToHalf2(v.z, v.w)};
  return *reinterpret_cast<const uint2*>(pair);
}
__device__ __forceinline__ uint2 LowHalves(float4 v, uint2 high) {
  const float2 f0 = __half22float2(*reinterpret_cast<const __half2*>(&high.x));
  const float2 f1 = __half22float2(*reinterpret_cast<const __half2*>(&high.y));
  // __fsub_rn: a compiler could join a product before with the subtraction, whose operand must be rounded.
  return HighHalves({__fsub_rn(v.x, f0.x), __fsub_rn(v.y, f0.y), __fsub_rn(v.z, f1.x), __fsub_rn(v.w, f1.y)});
}

// Stores channels c[n]..c[n]+3 of row t[n] of batch row b for all n. kHalves: they are known not to be F32.
template <bool kHalves, int kQuads>
__device__ __forceinline__ void StoreSinks(const Sink& s, int b, const int (&t)[kQuads], std::byte* state, int frame,
                                           const int (&c)[kQuads], const float4 (&v)[kQuads]) {
  const int64_t first_row = static_cast<int64_t>(b) * s.rows;
  const bool floats = !kHalves && s.planes == Planes::kF32;
  const bool two_planes = s.planes == Planes::kTwoHalves;
  const auto store = [&](void* to, int64_t plane, int64_t first, int n) {
    const int64_t at = (first + t[n]) * s.channels + c[n];
    if (floats) {
      *reinterpret_cast<float4*>(static_cast<float*>(to) + at) = v[n];
      return;
    }
    const uint2 high = HighHalves(v[n]);
    *reinterpret_cast<uint2*>(static_cast<__half*>(to) + at) = high;
    if (two_planes) *reinterpret_cast<uint2*>(static_cast<__half*>(to) + plane + at) = LowHalves(v[n], high);
  };
#pragma unroll
  for (int n = 0; n < kQuads; ++n) store(s.data, s.plane, first_row, n);
  // The frame's last rows, which later frames read: few, so their addresses are computed only where there are any.
  const int first_kept = s.rows - s.keep;
  bool any = false;
#pragma unroll
  for (int n = 0; n < kQuads; ++n) any = any || t[n] >= first_kept;
  if (!any) return;
  const int64_t first_in_history = static_cast<int64_t>(frame % s.ring) * s.keep - first_kept;
#pragma unroll
  for (int n = 0; n < kQuads; ++n) {
    if (t[n] >= first_kept) store(state + s.history, s.history_plane, first_in_history, n);
  }
}
__device__ __forceinline__ void StoreSink(const Sink& s, int b, int t, std::byte* state, int frame, int c, float4 v) {
  const int times[1] = {t};
  const int channels[1] = {c};
  const float4 values[1] = {v};
  StoreSinks<false>(s, b, times, state, frame, channels, values);
}

// Prepares a kernel of the chain, see PrepareKernels().
template <typename Args>
cudaError_t PrepareKernel(void (*kernel)(Args), size_t shared_bytes) {
  const cudaError_t error = PreferSharedMemory(kernel);
  return error == cudaSuccess ? AllowSharedMemory(kernel, shared_bytes) : error;
}

// Launches a kernel of the chain, its blocks in clusters of `cluster` along x.
template <typename Args>
cudaError_t LaunchChained(void (*kernel)(Args), dim3 grid, int threads, size_t shared_bytes, const Args& args,
                          const DeviceTraits& device, cudaStream_t stream, int cluster = 1) {
  const LaunchOptions options = {device.programmatic_launch, static_cast<unsigned>(cluster), false};
  return LaunchKernel(kernel, grid, threads, shared_bytes, stream, options, args);
}

}  // namespace qtts::cuda::codec

#endif  // QTTS_CUDA_CODEC_DEVICE_CUH_
