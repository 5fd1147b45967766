// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RULES_TEMPERATURE_CUH_
#define QTTS_CUDA_RULES_TEMPERATURE_CUH_

// Temperature: logits are divided by it.
namespace qtts::cuda {

struct Temperature {
  float most;  // the largest logit
  float temperature;
  bool scales;

  __device__ __forceinline__ Temperature(float largest, float value)
      : most(largest), temperature(value), scales(value != 1.0F) {}

  // Scales a logit. The maximum is subtracted first: otherwise a tiny temperature could make several logits infinite,
  // hence equal.
  __device__ __forceinline__ float Scale(float logit) const { return scales ? (logit - most) / temperature : logit; }
  // Returns Scale() of the largest logit.
  __device__ __forceinline__ float Largest() const { return scales ? 0.0F : most; }
  // Returns a distance of scaled logits in raw ones.
  __device__ __forceinline__ float Unscaled(float distance) const { return distance * (scales ? temperature : 1.0F); }
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RULES_TEMPERATURE_CUH_
