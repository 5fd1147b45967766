// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RULES_DRAW_CUH_
#define QTTS_CUDA_RULES_DRAW_CUH_

#include <cstdint>

#include "rules/candidates.cuh"
#include "sampling/philox.h"

// The draw: the candidate with the highest logit - log(-log(u)), u by Philox of seed, frame, codebook and id; among
// equals the lowest id.
namespace qtts::cuda {

struct DrawKey {
  uint64_t seed;
  int frame, codebook;

  __device__ __forceinline__ float Uniform(unsigned id) const {
    return UnitInterval(
        DrawBits(seed, static_cast<uint32_t>(frame), static_cast<uint32_t>(codebook), id, DrawPurpose::kGumbel));
  }
};

// Draws in F64, exactly.
template <typename Team>
__device__ __forceinline__ int DrawExactly(const Candidates& c, const DrawKey& key, SamplingMemory* shared) {
  unsigned long long score = 0;
  unsigned id = 0xFFFFFFFFU;
#pragma unroll 1
  for (int i = c.begin + static_cast<int>(threadIdx.x); i < c.end && c.wanted; i += Team::kThreads) {
    const auto candidate = static_cast<unsigned>(c.list[i]);
    const double logit = Unordered(static_cast<unsigned>(c.list[i] >> 32));
    const unsigned long long s = Ordered(logit - log(-log(static_cast<double>(key.Uniform(candidate)))));
    if (s > score || (s == score && candidate < id)) {
      score = s;
      id = candidate;
    }
  }
  const auto best = [&] {
    const unsigned long long most_of_all = WarpMax(score);
    id = __reduce_min_sync(~0U, score == most_of_all ? id : 0xFFFFFFFFU);
    score = most_of_all;
  };
  best();
  if (threadIdx.x % 32 == 0) {
    shared->best[threadIdx.x / 32] = score;
    shared->ids[threadIdx.x / 32] = id;
  }
  Team::Sync();
  score = shared->best[threadIdx.x % Team::kWarps];
  id = shared->ids[threadIdx.x % Team::kWarps];
  best();
  return static_cast<int>(id);
}

// Draws in F32 first: usually one candidate leads by more than the error of F32.
template <typename Team, typename Prefetch>
__device__ __forceinline__ int Draw(const Candidates& c, const DrawKey& key, SamplingMemory* shared,
                                    const Prefetch& prefetch) {
  unsigned long long rough = 0;
#pragma unroll 1
  for (int i = c.begin + static_cast<int>(threadIdx.x); i < c.end && c.wanted; i += Team::kThreads) {
    const auto candidate = static_cast<unsigned>(c.list[i]);
    prefetch(static_cast<int>(candidate));
    const float u = key.Uniform(candidate);
    // -log(u), also where u is next to 1.
    const float w = u > 0.5F ? -log1pf(u - 1.0F) : -__logf(u);
    const float value = Unordered(static_cast<unsigned>(c.list[i] >> 32)) - __logf(w);
    const unsigned long long score = Candidate(value, static_cast<int>(candidate));
    rough = score > rough ? score : rough;
  }
  const unsigned long long highest = BlockMax<Team>(rough, shared->scores);
  const float roughly = Unordered(static_cast<unsigned>(highest >> 32));
  const float enough = roughly - (1e-3F + fabsf(roughly) * 1e-6F);
  bool close = rough != highest && Unordered(static_cast<unsigned>(rough >> 32)) >= enough && rough != 0;
  // A thread with several knows only its highest.
  close = close || (c.end - c.begin > Team::kThreads && rough != 0);
  if (!Team::Any(close)) return static_cast<int>(static_cast<unsigned>(highest));
  return DrawExactly<Team>(c, key, shared);
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RULES_DRAW_CUH_
