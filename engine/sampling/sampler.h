// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SAMPLING_SAMPLER_H_
#define QTTS_SAMPLING_SAMPLER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "qtts/request.h"

// The official sampling rules (spec 6) on plain arrays: the reference for every backend.
namespace qtts {

// Where a draw is made: with the seed it determines the random numbers.
struct DrawPosition {
  uint64_t seed = 0;
  uint32_t frame = 0;
  uint32_t codebook = 0;
};

// Nothing can be chosen: the logits hold a NaN or +infinity, or nothing above -infinity. The model
// that gave them is damaged; the utterance cannot go on.
inline constexpr int32_t kNoToken = -1;

// Chooses from `logits`, which it overwrites. -infinity marks what cannot be chosen. Greedy: the
// first largest. Otherwise temperature, top-k (ties at the threshold stay), top-p (among equals the
// lower ids go first), then a draw in proportion to softmax by the Gumbel-max rule: the largest of
// logit - log(-log(u_token)), computed in double precision. kNoToken if nothing can be chosen.
int32_t SampleToken(std::span<float> logits, const TokenSampling& sampling, const DrawPosition& position);

// Codebook 0 of one utterance: the logit rules that depend on its history.
class TalkerSampler {
 public:
  // `vocab_size` ids, of which the last 1024 except `eos_id` are never chosen.
  TalkerSampler(int vocab_size, int eos_id, const GenerationSettings& settings, uint64_t seed);

  // Chooses the next id from `logits` [vocab_size], overwritten: repetition penalty on the ids chosen
  // so far, no end before two ids, suppression, then SampleToken(). Remembers the choice. kNoToken if
  // nothing can be chosen.
  int32_t Sample(std::span<float> logits);

  // Ids chosen so far, the end included.
  int64_t count() const { return count_; }

 private:
  int eos_id_;
  TokenSampling sampling_;
  float repetition_penalty_;
  uint64_t seed_;
  int64_t count_ = 0;
  std::vector<bool> chosen_;
};

}  // namespace qtts

#endif  // QTTS_SAMPLING_SAMPLER_H_
