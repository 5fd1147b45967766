// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RULES_SAMPLING_CUH_
#define QTTS_CUDA_RULES_SAMPLING_CUH_

#include <cstdint>

#include "rules/candidates.cuh"
#include "rules/draw.cuh"
#include "rules/sampling_rules.h"
#include "rules/temperature.cuh"
#include "rules/top_k.cuh"
#include "rules/top_p.cuh"

// The order of the sampling rules, for every kernel that samples (spec 6; engine/sampling/sampler.cc is the reference).
// Before it penalty.cuh, for the talker. The result does not depend on the team's size.
namespace qtts::cuda {

// Samples from logits [vocab] in shared memory, which are changed; -infinity marks what cannot be sampled. Below 0 if
// the logits hold a NaN or +infinity, or nothing can be sampled. prefetch(id) is called for whatever can be, by any
// thread, meanwhile.
template <typename Team, typename Prefetch>
__device__ __forceinline__ int SampleToken(float* logits, int vocab, const SamplingRules& rules, const DrawKey& key,
                                           const CandidateLists& lists, SamplingMemory* shared,
                                           const Prefetch& prefetch) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) shared->listed = 0;
  if (thread < 256) {
    shared->histogram[thread] = 0;
    shared->ranked[thread] = 0;
  }
  Team::Sync();
  constexpr unsigned long long kBad = ~0ULL;  // larger than any key
  const LargestLogit mine = ScanLogits<Team>(logits, vocab);
  // Among equals the lowest id.
  const unsigned long long first = mine.bad ? kBad : mine.logit == -INFINITY ? 0 : Candidate(mine.logit, ~mine.id);
  const unsigned long long largest = BlockMax<Team>(first, shared->best);
  if (largest == 0 || largest == kBad) return -1;
  if (rules.do_sample == 0) return static_cast<int>(~static_cast<unsigned>(largest));

  const Temperature temperature(Unordered(static_cast<unsigned>(largest >> 32)), rules.temperature);
  const float bound =
      LimitsTopK(rules.top_k, vocab) ? TopKBound<Team>(temperature, mine.logit, rules.top_k, shared) : INFINITY;
  Candidates candidates = ListCandidates<Team>(logits, vocab, temperature, bound, lists, shared);
  KeepTopK<Team>(&candidates, logits, vocab, temperature, rules.top_k, lists, shared);
  if (rules.top_p < 1.0F) KeepTopP<Team>(&candidates, rules.top_p, shared);
  return Draw<Team>(candidates, key, shared, prefetch);
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RULES_SAMPLING_CUH_
