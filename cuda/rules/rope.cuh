// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RULES_ROPE_CUH_
#define QTTS_CUDA_RULES_ROPE_CUH_

#include "runtime/device_math.cuh"

namespace qtts::cuda {

// Returns a lane's part of a head's sum of squares.
template <int kPairs>
__device__ __forceinline__ float HeadSquares(const float (&low)[kPairs], const float (&high)[kPairs]) {
  float squares = 0;
#pragma unroll
  for (int j = 0; j < kPairs; ++j) squares += low[j] * low[j] + high[j] * high[j];
  return squares;
}
// Returns the norm's factor, from the sum over all lanes.
__device__ __forceinline__ float HeadFactor(float sum, float eps, int half) {
  return 1.0F / sqrtf(sum / static_cast<float>(2 * half) + eps);
}
template <int kPairs, typename Store>
__device__ __forceinline__ void RotateHead(const float (&low)[kPairs], const float (&high)[kPairs], float factor,
                                           const float (&low_norm)[kPairs], const float (&high_norm)[kPairs],
                                           const float (&sine)[kPairs], const float (&cosine)[kPairs], int half,
                                           int lane, const Store& store) {
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = lane + 32 * j;
    if (i >= half) continue;
    const float a = low[j] * factor * low_norm[j];
    const float b = high[j] * factor * high_norm[j];
    store(i, a * cosine[j] - b * sine[j]);
    store(half + i, b * cosine[j] + a * sine[j]);
  }
}

// Applies norm (if any) and RoPE to one head of 2 * half elements, by one warp: lane l has the elements l + 32 j in
// low[j] and half + l + 32 j in high[j], zeros beyond the head. store(i, value) gets every element of the result.
template <int kPairs, typename Store>
__device__ __forceinline__ void NormAndRotate(const float (&low)[kPairs], const float (&high)[kPairs], bool normed,
                                              const float (&low_norm)[kPairs], const float (&high_norm)[kPairs],
                                              float eps, const float (&sine)[kPairs], const float (&cosine)[kPairs],
                                              int half, int lane, const Store& store) {
  const float squares = HeadSquares(low, high);
  float factor = 1;
  if (normed) factor = HeadFactor(WarpSum(squares), eps, half);
  RotateHead(low, high, factor, low_norm, high_norm, sine, cosine, half, lane, store);
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RULES_ROPE_CUH_
