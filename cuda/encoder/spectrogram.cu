// SPDX-License-Identifier: LGPL-2.1-or-later
#include <cstdint>

#include "backend/mel_tables.h"
#include "encoder/kernels.h"
#include "runtime/launch.h"

namespace qtts::cuda::encoder {
namespace {

constexpr int kLength = MelTables::kLength;
constexpr int kLogLength = 10;
constexpr int kThreads = kLength / 2;  // a butterfly each

static_assert(1 << kLogLength == kLength);

// Computes the spectrogram, a block per frame, without fused multiply-adds, so that each number is the CPU's.
__global__ void __launch_bounds__(kThreads) SpectrogramKernel(const __grid_constant__ Spectrogram a) {
  __shared__ double2 v[kLength];
  __shared__ double magnitudes[MelTables::kFrequencies];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t frame = blockIdx.x;

  for (int n = thread; n < kLength; n += kThreads) {
    int64_t i = frame * MelTables::kHop + n - MelTables::kPadding;
    if (i < 0) i = -i;
    if (i >= a.samples) i = 2 * (a.samples - 1) - i;
    const auto reversed = __brev(static_cast<unsigned>(n)) >> (32 - kLogLength);
    v[reversed] = {__dmul_rn(static_cast<double>(__ldg(a.window + n)), static_cast<double>(__ldg(a.pcm + i))), 0.0};
  }
  __syncthreads();
  for (int half = 1; half < kLength; half *= 2) {
    const int k = thread % half;
    const int at = thread / half * 2 * half + k;
    const double2 r = a.roots[k * (kLength / 2 / half)];
    const double2 x = v[at];
    const double2 y = v[at + half];
    const double2 turned = {__dsub_rn(__dmul_rn(r.x, y.x), __dmul_rn(r.y, y.y)),
                            __dadd_rn(__dmul_rn(r.x, y.y), __dmul_rn(r.y, y.x))};
    v[at + half] = {__dsub_rn(x.x, turned.x), __dsub_rn(x.y, turned.y)};
    v[at] = {__dadd_rn(x.x, turned.x), __dadd_rn(x.y, turned.y)};
    __syncthreads();
  }
  for (int f = thread; f < MelTables::kFrequencies; f += kThreads) {
    const double norm = __dadd_rn(__dmul_rn(v[f].x, v[f].x), __dmul_rn(v[f].y, v[f].y));
    magnitudes[f] = __dsqrt_rn(__dadd_rn(norm, MelTables::kMinPower));
  }
  __syncthreads();
  for (int b = thread; b < a.bins; b += kThreads) {
    const int begin = a.begin[b];
    const int count = a.begin[b + 1] - begin;
    const double* const from = magnitudes + a.first[b];
    double sum = 0;
    for (int i = 0; i < count; ++i) {
      sum = __dadd_rn(sum, __dmul_rn(static_cast<double>(__ldg(a.weights + begin + i)), from[i]));
    }
    a.mels[frame * a.bins + b] = static_cast<float>(log(sum < MelTables::kMinMel ? MelTables::kMinMel : sum));
  }
}

}  // namespace

cudaError_t ComputeMels(const Spectrogram& spectrogram, cudaStream_t stream) {
  return LaunchKernel(SpectrogramKernel, dim3(static_cast<unsigned>(spectrogram.frames)), kThreads, 0, stream, {},
                      spectrogram);
}

}  // namespace qtts::cuda::encoder
