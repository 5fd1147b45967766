// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RULES_TOP_K_CUH_
#define QTTS_CUDA_RULES_TOP_K_CUH_

#include <cstdint>

#include "rules/candidates.cuh"
#include "rules/temperature.cuh"

// Top-k: what is less than the k-th largest logit is dropped, ties stay. k = 0 or no less than the vocabulary: none is.
//
// Three steps, of which the first two find the answer for all usual logits: a bound on how far below the largest the
// top k can be, found with one count for each thread; a list of what is above the bound, ranked by comparing all with
// all; and, where logits are alike and the list is long, the k-th largest bit by bit.
namespace qtts::cuda {

__device__ __forceinline__ bool LimitsTopK(int k, int vocab) { return k > 0 && k < vocab; }

// A logit's bin, the largest ones' is 255.
inline constexpr float kBinsPerUnit = 16;
__device__ __forceinline__ int BinOf(float below_largest) {
  return 255 - static_cast<int>(fminf(below_largest * kBinsPerUnit, 255.0F));
}

// Finds where the k-th largest of all counted keys lies, bin 255 first: its bin, and how many of that bin are wanted.
// The same in each warp; histogram complete.
__device__ __forceinline__ int2 FindBin(const int* histogram, int k) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int4 high = reinterpret_cast<const int4*>(histogram)[63 - 2 * lane];
  const int4 low = reinterpret_cast<const int4*>(histogram)[62 - 2 * lane];
  const int counts[8] = {high.w, high.z, high.y, high.x, low.w, low.z, low.y, low.x};
  int total = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) total += counts[i];
  int through = total;  // keys in this lane's bins and those above
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const int below = __shfl_up_sync(~0U, through, offset);
    if (lane >= offset) through += below;
  }
  int above = through - total;
  int2 found = {0, k};
  const bool here = above < k && through >= k;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (here && above < k && above + counts[i] >= k) found = {255 - (lane * 8 + i), k - above};
    above += counts[i];
  }
  const unsigned lanes = __ballot_sync(~0U, here);
  const int source = lanes == 0 ? 0 : __ffs(static_cast<int>(lanes)) - 1;
  return {__shfl_sync(~0U, found.x, source), __shfl_sync(~0U, found.y, source)};
}

// Returns the bound: logits at least this far below the largest are not among the top k. In raw logits, with a margin
// for rounding, so that few must be divided. `mine`: the thread's largest logit. The histogram is zero.
template <typename Team>
__device__ __forceinline__ float TopKBound(const Temperature& temperature, float mine, int k, SamplingMemory* shared) {
  // The k-th largest of all is no smaller than the k-th largest of the threads' largest ones, whose bin is found with
  // one count for each thread.
  const float value = temperature.Scale(mine);
  if (value != -INFINITY) atomicAdd(&shared->histogram[BinOf(temperature.Largest() - value)], 1);
  Team::Sync();
  const int lowest_bin = FindBin(shared->histogram, k).x;
  if (lowest_bin <= 0) return INFINITY;
  const float bins = static_cast<float>(256 - lowest_bin) / kBinsPerUnit + 0.01F;
  return temperature.Unscaled(bins * 1.001F);
}

// Lists the scaled logits that are no further than `bound` below the largest. `listed` and `ranked` are zero.
template <typename Team>
__device__ __forceinline__ Candidates ListCandidates(const float* logits, int vocab, const Temperature& temperature,
                                                     float bound, const CandidateLists& lists, SamplingMemory* shared) {
  constexpr int kStep = kBatch<Team> * Team::kThreads;
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
  for (int base = thread; base - thread < vocab; base += kStep) {
    unsigned listed = 0;  // bit j: whether the batch's j-th is
#pragma unroll
    for (int j = 0; j < kBatch<Team>; ++j) {
      const int i = base + j * Team::kThreads;
      const float logit = i < vocab ? logits[i] : -INFINITY;
      if (logit != -INFINITY && temperature.most - logit <= bound) listed |= 1U << j;
    }
    int place = Reserve(__popc(listed), &shared->listed);
    for (; listed != 0; listed &= listed - 1) {
      const int i = base + (__ffs(static_cast<int>(listed)) - 1) * Team::kThreads;
      const float value = temperature.Scale(logits[i]);
      if (place < 256) shared->ranked[place] = value == -INFINITY ? 0 : Ordered(value);
      if (place < lists.room) lists.few[place] = Candidate(value, i);
      ++place;
    }
  }
  Team::Sync();
  return {lists.few, 0, shared->listed, true};
}

// Returns the k-th largest of logits [vocab], as Ordered() has it, 0 if there are fewer: eight bits a pass, until all
// that share the found ones are wanted.
template <typename Team>
__device__ __forceinline__ unsigned KthLargest(const float* logits, int vocab, int k, SamplingMemory* shared) {
  unsigned prefix = 0;
#pragma unroll 1
  for (int shift = 24; shift >= 0; shift -= 8) {
    Team::Sync();
    if (threadIdx.x < 256) shared->histogram[threadIdx.x] = 0;
    Team::Sync();
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < vocab; i += Team::kThreads) {
      const unsigned key = Ordered(logits[i]);
      const bool candidate = logits[i] != -INFINITY && (shift == 24 || key >> (shift + 8) == prefix >> (shift + 8));
      if (candidate) atomicAdd(&shared->histogram[key >> shift & 255U], 1);
    }
    Team::Sync();
    const int2 found = FindBin(shared->histogram, k);
    prefix |= static_cast<unsigned>(found.x) << shift;
    k = found.y;
    if (k == shared->histogram[found.x]) break;
  }
  return prefix;
}

// Lists those of logits [vocab] that are no smaller than `threshold`, as far as there is room; how many they are.
template <typename Team>
__device__ __forceinline__ int ListFrom(const float* logits, int vocab, unsigned threshold, unsigned long long* list,
                                        int room, SamplingMemory* shared) {
  Team::Sync();
  if (threadIdx.x == 0) shared->listed = 0;
  Team::Sync();
#pragma unroll 1
  for (int base = 0; base < vocab; base += Team::kThreads) {
    const int i = base + static_cast<int>(threadIdx.x);
    const float logit = i < vocab ? logits[i] : -INFINITY;
    const bool listed = logit != -INFINITY && Ordered(logit) >= threshold;
    const int place = Reserve(listed ? 1 : 0, &shared->listed);
    if (listed && place < room) list[place] = Candidate(logit, i);
  }
  Team::Sync();
  return shared->listed;
}

// Returns whether list[thread] of up to `end` candidates, no more than threads, has fewer than k larger ones. More than
// 256 candidates are not ranked: false for all.
template <typename Team>
__device__ __forceinline__ bool IsWanted(const Candidates& c, bool limited, int k, const SamplingMemory* shared) {
  const int thread = static_cast<int>(threadIdx.x);
  const unsigned key = thread < c.end ? static_cast<unsigned>(c.list[thread] >> 32) : 0;
  // Where scaling has led to -infinity.
  bool wanted = thread < c.end && key != Ordered(-INFINITY);
  if (limited && c.end > k) {
    if (c.end <= 256) {
      int larger = 0;
      if (thread / 32 * 32 < c.end) {
#pragma unroll 4
        for (int i = 0; i < c.end; i += 4) {
          const uint4 others = reinterpret_cast<const uint4*>(shared->ranked)[i / 4];
          larger +=
              (others.x > key ? 1 : 0) + (others.y > key ? 1 : 0) + (others.z > key ? 1 : 0) + (others.w > key ? 1 : 0);
        }
      }
      wanted = wanted && larger < k;
    } else {
      wanted = false;
    }
  }
  return wanted;
}

// Leaves the top k of what ListCandidates() has listed. Scales the logits where they are many.
template <typename Team>
__device__ __forceinline__ void KeepTopK(Candidates* c, float* logits, int vocab, const Temperature& temperature, int k,
                                         const CandidateLists& lists, SamplingMemory* shared) {
  const bool limited = LimitsTopK(k, vocab);
  if (c->end <= Team::kThreads) c->wanted = IsWanted<Team>(*c, limited, k, shared);
  if (c->end > Team::kThreads || (limited && c->end > k && c->end > 256)) {
    // Many that are alike: all are scaled, and the k-th largest is found bit by bit.
    Team::Sync();
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < vocab; i += Team::kThreads) {
      logits[i] = temperature.Scale(logits[i]);
    }
    const unsigned threshold = limited ? KthLargest<Team>(logits, vocab, k, shared) : 0;
    Team::Sync();
    c->end = ListFrom<Team>(logits, vocab, threshold, c->list, lists.room, shared);
    if (c->end > lists.room) {
      c->list = lists.all;
      c->end = ListFrom<Team>(logits, vocab, threshold, c->list, vocab, shared);
    }
    c->wanted = true;
  }
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RULES_TOP_K_CUH_
