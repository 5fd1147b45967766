// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RULES_SAMPLING_RULES_H_
#define QTTS_CUDA_RULES_SAMPLING_RULES_H_

namespace qtts::cuda {

// Numbers of the sampling rules, on the device.
struct SamplingRules {
  int do_sample;
  float temperature;
  int top_k;
  float top_p;
};

// Numbers of the rules over the history, for the talker's logits alone.
struct HistoryRules {
  float repetition_penalty;
};

// Takes the rules from TokenSampling (qtts/request.h).
template <typename TokenSampling>
SamplingRules RulesOf(const TokenSampling& s) {
  static_assert(sizeof(TokenSampling) == sizeof(SamplingRules), "a number of a rule is missing here");
  return {s.do_sample ? 1 : 0, s.temperature, s.top_k, s.top_p};
}

// Takes the rules from GenerationSettings.
template <typename GenerationSettings>
HistoryRules HistoryRulesOf(const GenerationSettings& s) {
  return {s.repetition_penalty};
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RULES_SAMPLING_RULES_H_
