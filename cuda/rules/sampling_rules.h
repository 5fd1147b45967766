// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RULES_SAMPLING_RULES_H_
#define QTTS_CUDA_RULES_SAMPLING_RULES_H_

namespace qtts::cuda {

// Parameters of the sampling rules, on the device.
struct SamplingRules {
  int do_sample;
  float temperature;
  int top_k;
  float top_p;
};

// Of TokenSampling (qtts/request.h).
template <typename TokenSampling>
SamplingRules RulesOf(const TokenSampling& s) {
  return {s.do_sample ? 1 : 0, s.temperature, s.top_k, s.top_p};
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RULES_SAMPLING_RULES_H_
