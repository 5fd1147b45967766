// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_FRAME_CHOICE_CUH_
#define QTTS_CUDA_PATHS_PERSISTENT_FRAME_CHOICE_CUH_

#include <cstdint>

#include "frame/frame.h"
#include "frame/frame_state.h"
#include "frame/outcome.cuh"
#include "paths/persistent/frame_block.cuh"
#include "paths/persistent/frame_memory.cuh"
#include "paths/persistent/frame_shape.cuh"
#include "paths/persistent/team.cuh"
#include "paths/persistent/words.cuh"
#include "rules/penalty.cuh"
#include "rules/sampling.cuh"
#include "runtime/async_copy.cuh"

// Sampling in the persistent kernel: a row's next code from its logits.
namespace qtts::cuda::persistent {

template <typename Traits>
__device__ __forceinline__ bool Block<Traits>::ChooseCode(int row, int group, bool alive) {
  const bool talker = group == 0;
  const uint32_t logits_epoch = talker ? epoch_ - 1 : epoch_;
  const int vocab = talker ? a.talker_vocab : a.predictor_vocab;
  const int slot = shared_->slots[row];
  const bool speaks = slot >= 0 && alive;
  SlotState& state = a.slots[max(slot, 0)];
  unsigned* const history = a.history + static_cast<int64_t>(max(slot, 0)) * a.history_words;
  const int chosen = state.chosen;
  const SamplingRules rules = talker ? state.talker : state.predictor;
  const uint64_t seed = state.seed;
  const int64_t max_new_tokens = state.max_new_tokens;
  const HistoryRules history_rules = state.history_rules;
  unsigned repeated = 0;  // of the pairs of ids that this thread brings in, which were chosen before
  if (speaks && talker) {
#pragma unroll
    for (int j = 0; j < kPersistentVocab / (2 * kTeamThreads); ++j) {
      const int i = 2 * (thread_ + j * kTeamThreads);
      if (i < vocab) repeated |= (history[i / 32] >> (i % 32) & 3U) << (2 * j);
    }
  }
  float* const logits = shared_->work.choice.logits;
  // The products before this one are over for all warps.
  Team::Sync();
  constexpr int kTogether = 4;  // pairs of logits
#pragma unroll 1
  for (int base = 2 * thread_; base < vocab; base += 2 * kTogether * kTeamThreads) {
    const Word* const words = a.logits + row * kPersistentVocab + base;
    uint4 seen[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      if (base + j * 2 * kTeamThreads < vocab) seen[j] = LoadTwoWords(words + j * 2 * kTeamThreads);
    }
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const int i = base + j * 2 * kTeamThreads;
      if (i >= vocab) break;
      const uint2 pair = Await(seen[j], words + j * 2 * kTeamThreads, logits_epoch, patience_);
      *reinterpret_cast<float2*>(logits + i) = {__uint_as_float(pair.x), __uint_as_float(pair.y)};
    }
  }
  int id = -1;
  bool goes_on = false;
  if (speaks) {
    if (talker) {
#pragma unroll 1
      for (int i = 2 * thread_; i < vocab; i += 2 * kTeamThreads) {
        logits[i] = TalkerLogit(logits[i], i, (repeated & 1U) != 0, history_rules, vocab, a.eos_id, chosen);
        logits[i + 1] = TalkerLogit(logits[i + 1], i + 1, (repeated & 2U) != 0, history_rules, vocab, a.eos_id, chosen);
        repeated >>= 2;
      }
    }
    // Prefetches the embeddings of candidates into L2.
    const auto prefetch = [&](int candidate) {
      if (group + 1 >= a.groups) return;
      const PredictorPass& p = shared_->passes[group];
      const char* const embedding = p.table + static_cast<int64_t>(candidate) * p.table_stride * 2;
#pragma unroll 4
      for (int at = 0; at < kPersistentHidden * 2; at += 128) {
        PrefetchL2(embedding + at);
      }
    };
    auto& choice = shared_->work.choice;
    const CandidateLists lists = {choice.list, kFewCandidates,
                                  a.candidates + static_cast<int64_t>(row) * kPersistentCandidates};
    id = SampleToken<Team>(logits, vocab, rules, {seed, talker ? chosen : chosen - 1, group}, lists, &choice.memory,
                           prefetch);
    const EndReason end = EndAfter(id, a.eos_id, chosen, max_new_tokens);
    goes_on = talker ? end == EndReason::kNone : id >= 0;
    if (thread_ == 0) Publish(a.ids + row, goes_on ? static_cast<uint32_t>(id) : ~0U, epoch_ + 1);
    Team::Sync();
    if (thread_ == 0) {
      if (talker) {
        TakeTalkerId(id, end, row, a.groups, a.frame, history, &state);
      } else {
        TakePredictorId(id, group, row, a.groups, a.frame, &state);
      }
    }
  } else {
    if (thread_ == 0) Publish(a.ids + row, ~0U, epoch_ + 1);
    // Others may not stage rows in the place of logits that are still coming in.
    Team::Sync();
  }
  return goes_on;
}

}  // namespace qtts::cuda::persistent

#endif  // QTTS_CUDA_PATHS_PERSISTENT_FRAME_CHOICE_CUH_
