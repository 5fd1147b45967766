// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RULES_TOP_P_CUH_
#define QTTS_CUDA_RULES_TOP_P_CUH_

#include <cstdint>

#include "rules/candidates.cuh"

// Top-p: removes the least likely candidates while their probabilities sum to at most 1 - p; one always stays. p = 1
// removes none. Sums are F64, in an order that does not depend on the team's size: that of 32 warps of 32 lanes, each
// of which has consecutive candidates.
namespace qtts::cuda {

// Sorts in ascending order, with room for the next power of two. Among equals the lower ids go first.
template <typename Team>
__device__ __forceinline__ void SortCandidates(unsigned long long* list, int n) {
  int size = 1;
  while (size < n) size *= 2;
  for (int i = n + static_cast<int>(threadIdx.x); i < size; i += Team::kThreads) list[i] = ~0ULL;
  Team::Sync();
  for (int block = 2; block <= size; block *= 2) {
    for (int distance = block / 2; distance > 0; distance /= 2) {
      for (int i = static_cast<int>(threadIdx.x); i < size; i += Team::kThreads) {
        const int other = i ^ distance;
        if (other <= i) continue;
        const bool ascending = (i & block) == 0;
        if ((list[i] > list[other]) == ascending) {
          const unsigned long long held = list[i];
          list[i] = list[other];
          list[other] = held;
        }
      }
      Team::Sync();
    }
  }
}

// Sorts list [n] and counts those to be dropped.
template <typename Team>
__device__ __forceinline__ int CountBelowTopP(unsigned long long* sorted, int n, float p, SamplingMemory* shared) {
  if (threadIdx.x == 0) shared->dropped = 0;
  SortCandidates<Team>(sorted, n);
  const double largest = Unordered(static_cast<unsigned>(sorted[n - 1] >> 32));
  constexpr int kSumWarps = 32;
  constexpr int kTurns = kSumWarps / Team::kWarps;  // of these that a warp of the team is
  const int share = (n + 32 * kSumWarps - 1) / (32 * kSumWarps);
  const auto weight = [&](int i) { return exp(Unordered(static_cast<unsigned>(sorted[i] >> 32)) - largest); };
  const int lane = static_cast<int>(threadIdx.x % 32);
  const auto warp_of = [&](int turn) { return turn * Team::kWarps + static_cast<int>(threadIdx.x / 32); };
  const auto begin_of = [&](int turn) { return min(n, (warp_of(turn) * 32 + lane) * share); };
  // Sums of a turn: a lane's own, and that of the lanes up to it.
  struct Sums {
    double mine, through;
  };
  const auto sums_of = [&](int turn) {
    const int begin = begin_of(turn);
    double mine = 0;
#pragma unroll 1
    for (int i = begin; i < min(n, begin + share); ++i) mine += weight(i);
    double through = mine;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const double lower = __shfl_up_sync(~0U, through, offset);
      if (lane >= offset) through += lower;
    }
    return Sums{mine, through};
  };
#pragma unroll 1
  for (int turn = 0; turn < kTurns; ++turn) {
    const Sums sums = sums_of(turn);
    if (lane == 31) shared->sums[warp_of(turn)] = sums.through;
  }
  Team::Sync();
  double total = 0;
#pragma unroll 1
  for (int w = 0; w < kSumWarps; ++w) total += shared->sums[w];
  int dropped = 0;
#pragma unroll 1
  for (int turn = 0; turn < kTurns; ++turn) {
    const Sums sums = sums_of(turn);
    double before = 0;
#pragma unroll 1
    for (int w = 0; w < warp_of(turn); ++w) before += shared->sums[w];
    const int begin = begin_of(turn);
    double cumulative = before + (sums.through - sums.mine);
#pragma unroll 1
    for (int i = begin; i < min(n, begin + share) && i + 1 < n; ++i) {
      cumulative += weight(i);
      if (cumulative / total <= 1.0 - static_cast<double>(p)) ++dropped;
    }
  }
  if (dropped != 0) atomicAdd(&shared->dropped, dropped);
  Team::Sync();
  return shared->dropped;
}

template <typename Team>
__device__ __forceinline__ void KeepTopP(Candidates* c, float p, SamplingMemory* shared) {
  const int thread = static_cast<int>(threadIdx.x);
  if (c->end <= Team::kThreads) {
    // Those that are wanted come together.
    const unsigned long long candidate = thread < c->end ? c->list[thread] : 0;
    Team::Sync();
    if (thread == 0) shared->listed = 0;
    Team::Sync();
    const bool stays = thread < c->end && c->wanted;
    const int place = Reserve(stays ? 1 : 0, &shared->listed);
    if (stays) c->list[place] = candidate;
    Team::Sync();
    c->end = shared->listed;
    c->wanted = true;
  }
  c->begin = CountBelowTopP<Team>(c->list, c->end, p, shared);
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RULES_TOP_P_CUH_
