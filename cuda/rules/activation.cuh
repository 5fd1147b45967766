// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RULES_ACTIVATION_CUH_
#define QTTS_CUDA_RULES_ACTIVATION_CUH_

// SiLU, as exact as results that will be rounded to T can show.
namespace qtts::cuda {

// Computes x / (1 + exp(-x)).
template <typename T>
__device__ __forceinline__ float Silu(float x) {
  return sizeof(T) == 4 ? x / (1.0F + expf(-x)) : __fdividef(x, 1.0F + __expf(-x));
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RULES_ACTIVATION_CUH_
