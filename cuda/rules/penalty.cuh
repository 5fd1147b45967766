// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RULES_PENALTY_CUH_
#define QTTS_CUDA_RULES_PENALTY_CUH_

#include "rules/sampling_rules.h"

// Rules for the talker's logits before sampling (spec 6): repetition penalty, and suppressed ids.
namespace qtts::cuda {

__device__ __forceinline__ float Penalized(float logit, bool repeated, float penalty) {
  if (penalty != 1.0F && repeated) logit = logit < 0 ? logit * penalty : logit / penalty;
  return logit;
}

// Returns true if `id` is suppressed after `sampled` ids.
__device__ __forceinline__ bool IsForbidden(int id, int vocab, int eos_id, int sampled) {
  constexpr int kControlIds = 1024;  // the last ids, never codes
  constexpr int kMinIds = 2;         // before these no utterance ends
  return id == eos_id ? sampled < kMinIds : id >= vocab - kControlIds;
}

// Returns the talker's logit of `id` after these rules.
__device__ __forceinline__ float TalkerLogit(float logit, int id, bool repeated, const HistoryRules& rules, int vocab,
                                             int eos_id, int sampled) {
  logit = Penalized(logit, repeated, rules.repetition_penalty);
  return IsForbidden(id, vocab, eos_id, sampled) && !isnan(logit) ? -INFINITY : logit;
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RULES_PENALTY_CUH_
