// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SAMPLING_SAMPLER_H_
#define QTTS_SAMPLING_SAMPLER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "qtts/request.h"

// The official sampling rules (spec 6) on plain arrays: the reference for every backend.
namespace qtts {

// Position of a draw. Seed and position determine the random numbers.
struct DrawPosition {
  uint64_t seed = 0;
  uint32_t frame = 0;
  uint32_t codebook = 0;
};

// No token can be sampled: the logits contain a NaN or +infinity, or all are -infinity. The model is damaged and the
// utterance cannot go on.
inline constexpr int32_t kNoToken = -1;

// Samples a token from `logits` and overwrites them. A logit of -infinity excludes its token. Greedy: the first of the
// largest. Otherwise by the rules, in the order of this function, and a draw in proportion to softmax by the Gumbel-max
// rule: the largest logit - log(-log(u_token)), in double precision. Returns kNoToken if no token can be sampled.
int32_t SampleToken(std::span<float> logits, const TokenSampling& sampling, const DrawPosition& position);

// Sampler of codebook 0 of one utterance. It applies the rules that depend on the history.
class TalkerSampler {
 public:
  // `vocab_size`: number of ids. The last 1024, except `eos_id`, are never sampled.
  TalkerSampler(int vocab_size, int eos_id, const GenerationSettings& settings, uint64_t seed);

  // Samples the next id from `logits` [vocab_size], which it overwrites: rules over the history (repetition penalty),
  // no end before two ids, suppression of control ids, then SampleToken(). Remembers the id. Returns kNoToken if no id
  // can be sampled.
  int32_t Sample(std::span<float> logits);

  // Returns the number of ids sampled so far, including the end.
  int64_t count() const { return count_; }

 private:
  int eos_id_;
  GenerationSettings settings_;
  uint64_t seed_;
  int64_t count_ = 0;
  std::vector<bool> chosen_;
};

}  // namespace qtts

#endif  // QTTS_SAMPLING_SAMPLER_H_
