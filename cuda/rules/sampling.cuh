// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RULES_SAMPLING_CUH_
#define QTTS_CUDA_RULES_SAMPLING_CUH_

#include <cstdint>

#include "frame/frame.h"
#include "frame/frame_state.h"
#include "runtime/device_math.cuh"
#include "sampling/philox.h"

// How a team of threads chooses from logits, for every kernel that does. `Team` has kThreads and kWarps (at most
// 32, a power of two), thread numbers threadIdx.x below kThreads, Sync() and Any(bool). The choice does not depend on
// the team's size (but that sums of probabilities below top-p, in F64, are added in its order).
namespace qtts::cuda {

// All threads of a block.
template <int kBlockThreads>
struct WholeBlock {
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kWarps = kThreads / 32;
  static __device__ void Sync() { __syncthreads(); }
  static __device__ bool Any(bool value) { return __syncthreads_or(value) != 0; }
};

// Floats as integers of the same order; no NaN.
__device__ __forceinline__ unsigned Ordered(float x) {
  const unsigned bits = __float_as_uint(x);
  return bits ^ ((bits & 0x80000000U) != 0 ? 0xFFFFFFFFU : 0x80000000U);
}
__device__ __forceinline__ float Unordered(unsigned key) {
  return __uint_as_float(key ^ ((key & 0x80000000U) != 0 ? 0x80000000U : 0xFFFFFFFFU));
}
__device__ __forceinline__ unsigned long long Ordered(double x) {
  const auto bits = static_cast<unsigned long long>(__double_as_longlong(x));
  return bits ^ ((bits >> 63) != 0 ? ~0ULL : 1ULL << 63);
}

// Where the candidates of a choice are listed.
struct CandidateLists {
  unsigned long long* few;  // room for `room`, a power of two, no fewer than the team's threads or all logits
  int room;
  unsigned long long* all;  // room for all logits, rounded up to a power of two; for when they are more, may be `few`
};

// What the threads of a choice share.
struct ChoiceMemory {
  unsigned long long best[32];
  unsigned long long scores[32];
  unsigned ids[32];
  double sums[32];
  alignas(16) int histogram[256];
  alignas(16) unsigned ranked[256];  // the first of the list, as Ordered() has them; zeros behind
  int listed, dropped;
};

// The largest of a warp's values.
__device__ __forceinline__ unsigned long long WarpMax(unsigned long long value) {
  const auto high = static_cast<unsigned>(value >> 32);
  const unsigned most = __reduce_max_sync(~0U, high);
  const unsigned low = __reduce_max_sync(~0U, high == most ? static_cast<unsigned>(value) : 0);
  return static_cast<unsigned long long>(most) << 32 | low;
}

// The largest of all threads' values; every thread gets it. `memory` must not be in use.
template <typename Team>
__device__ __forceinline__ unsigned long long BlockMax(unsigned long long value, unsigned long long* memory) {
  value = WarpMax(value);
  if (threadIdx.x % 32 == 0) memory[threadIdx.x / 32] = value;
  Team::Sync();
  return WarpMax(memory[threadIdx.x % Team::kWarps]);
}

// Where the k-th largest of all counted keys lies, bin 255 first: its bin, and how many of that bin are wanted. The
// same in each warp; histogram complete.
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

// A logit and its id, in the order of logits, then ids.
__device__ __forceinline__ unsigned long long Candidate(float logit, int id) {
  return static_cast<unsigned long long>(Ordered(logit)) << 32 | static_cast<unsigned>(id);
}

// Makes room for so many entries of each thread in lists: where its own begin. All lanes of a warp take part.
__device__ __forceinline__ int Reserve(int entries, int* count) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  int through = entries;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const int below = __shfl_up_sync(~0U, through, offset);
    if (lane >= offset) through += below;
  }
  int first = 0;
  if (lane == 31 && through > 0) first = atomicAdd(count, through);
  return __shfl_sync(~0U, first, 31) + through - entries;
}

// Logits that a thread looks at together, so that none waits for another.
template <typename Team>
inline constexpr int kBatch = 2048 / Team::kThreads;

// The k-th largest of logits [vocab], as Ordered() has it, 0 if there are fewer: eight bits a pass, until all that
// share the found ones are wanted.
template <typename Team>
__device__ __forceinline__ unsigned KthLargest(const float* logits, int vocab, int k, ChoiceMemory* shared) {
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
                                        int room, ChoiceMemory* shared) {
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

// A logit's bin, the largest ones' is 255.
inline constexpr float kBinsPerUnit = 16;
__device__ __forceinline__ int BinOf(float below_largest) {
  return 255 - static_cast<int>(fminf(below_largest * kBinsPerUnit, 255.0F));
}

// Sorts list [n], with room for the next power of two, and counts the least likely, whose probabilities sum to no
// more than 1 - p; one always stays. Among equals the lower ids go first.
template <typename Team>
__device__ __forceinline__ int CountBelowTopP(unsigned long long* sorted, int n, float p, ChoiceMemory* shared) {
  int size = 1;
  while (size < n) size *= 2;
  if (threadIdx.x == 0) shared->dropped = 0;
  for (int i = n + static_cast<int>(threadIdx.x); i < size; i += Team::kThreads) sorted[i] = ~0ULL;
  Team::Sync();
  for (int block = 2; block <= size; block *= 2) {
    for (int distance = block / 2; distance > 0; distance /= 2) {
      for (int i = static_cast<int>(threadIdx.x); i < size; i += Team::kThreads) {
        const int other = i ^ distance;
        if (other <= i) continue;
        const bool ascending = (i & block) == 0;
        if ((sorted[i] > sorted[other]) == ascending) {
          const unsigned long long held = sorted[i];
          sorted[i] = sorted[other];
          sorted[other] = held;
        }
      }
      Team::Sync();
    }
  }
  const double largest = Unordered(static_cast<unsigned>(sorted[n - 1] >> 32));
  const int share = (n + Team::kThreads - 1) / Team::kThreads;  // consecutive keys of a thread
  const int begin = min(n, static_cast<int>(threadIdx.x) * share);
  const int end = min(n, begin + share);
  const auto weight = [&](int i) { return exp(Unordered(static_cast<unsigned>(sorted[i] >> 32)) - largest); };
  double mine = 0;
#pragma unroll 1
  for (int i = begin; i < end; ++i) mine += weight(i);
  double through = mine;
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const double below = __shfl_up_sync(~0U, through, offset);
    if (lane >= offset) through += below;
  }
  if (lane == 31) shared->sums[threadIdx.x / 32] = through;
  Team::Sync();
  double before = 0, total = 0;
#pragma unroll 1
  for (int w = 0; w < Team::kWarps; ++w) {
    if (w < static_cast<int>(threadIdx.x / 32)) before += shared->sums[w];
    total += shared->sums[w];
  }
  double cumulative = before + (through - mine);
  int dropped = 0;
#pragma unroll 1
  for (int i = begin; i < end && i + 1 < n; ++i) {
    cumulative += weight(i);
    if (cumulative / total <= 1.0 - static_cast<double>(p)) ++dropped;
  }
  if (dropped != 0) atomicAdd(&shared->dropped, dropped);
  Team::Sync();
  return shared->dropped;
}

// Chooses from logits [vocab] in shared memory, which are changed; -infinity marks what cannot be chosen. Below 0 if
// the logits hold a NaN or +infinity, or nothing can be chosen. prefetch(id) is called for whatever can be chosen, by
// any thread, while the choice is made.
template <typename Team, typename Prefetch>
__device__ __forceinline__ int Choose(float* logits, int vocab, const SamplingRules& rules, uint64_t seed, int frame,
                                      int codebook, const CandidateLists& lists, ChoiceMemory* shared,
                                      const Prefetch& prefetch) {
  constexpr int kStep = kBatch<Team> * Team::kThreads;
  const int thread = static_cast<int>(threadIdx.x);
  unsigned long long* list = lists.few;
  if (thread == 0) shared->listed = 0;
  if (thread < 256) {
    shared->histogram[thread] = 0;
    shared->ranked[thread] = 0;
  }
  Team::Sync();
  constexpr unsigned long long kBad = ~0ULL;  // larger than any key
  float mine = -INFINITY;
  int mine_at = 0;
  bool bad = false;
#pragma unroll 1
  for (int base = thread; base < vocab; base += kStep) {
#pragma unroll
    for (int j = 0; j < kBatch<Team>; ++j) {
      const int i = base + j * Team::kThreads;
      const float logit = i < vocab ? logits[i] : -INFINITY;
      bad = bad || !(logit < INFINITY);
      if (logit > mine) {
        mine = logit;
        mine_at = i;
      }
    }
  }
  // Among equals the lowest id.
  const unsigned long long first = bad ? kBad : mine == -INFINITY ? 0 : Candidate(mine, ~mine_at);
  const unsigned long long largest = BlockMax<Team>(first, shared->best);
  if (largest == 0 || largest == kBad) return -1;
  if (rules.do_sample == 0) return static_cast<int>(~static_cast<unsigned>(largest));

  const float most = Unordered(static_cast<unsigned>(largest >> 32));
  const bool scaled = rules.temperature != 1.0F;
  const float top = scaled ? 0.0F : most;
  // A tiny temperature must not carry the largest logits to infinity, where they would tie.
  const auto scale = [&](float logit) { return scaled ? (logit - most) / rules.temperature : logit; };
  const bool top_k = rules.top_k > 0 && rules.top_k < vocab;
  // What is at least so far below the largest is not among the top k. In raw logits, and with room for roundings, so
  // that few have to be divided.
  float farthest = INFINITY;
  if (top_k) {
    // The k-th largest of all is no smaller than the k-th largest of the threads' largest ones, whose bin is found with
    // one count for each thread.
    const float value = scale(mine);
    if (value != -INFINITY) atomicAdd(&shared->histogram[BinOf(top - value)], 1);
    Team::Sync();
    const int lowest_bin = FindBin(shared->histogram, rules.top_k).x;
    if (lowest_bin > 0) {
      const float bins = static_cast<float>(256 - lowest_bin) / kBinsPerUnit + 0.01F;
      farthest = bins * 1.001F * (scaled ? rules.temperature : 1.0F);
    }
  }
#pragma unroll 1
  for (int base = thread; base - thread < vocab; base += kStep) {
    unsigned listed = 0;  // bit j: whether the batch's j-th may be chosen
#pragma unroll
    for (int j = 0; j < kBatch<Team>; ++j) {
      const int i = base + j * Team::kThreads;
      const float logit = i < vocab ? logits[i] : -INFINITY;
      if (logit != -INFINITY && most - logit <= farthest) listed |= 1U << j;
    }
    int place = Reserve(__popc(listed), &shared->listed);
    for (; listed != 0; listed &= listed - 1) {
      const int i = base + (__ffs(static_cast<int>(listed)) - 1) * Team::kThreads;
      const float value = scale(logits[i]);
      if (place < 256) shared->ranked[place] = value == -INFINITY ? 0 : Ordered(value);
      if (place < lists.room) list[place] = Candidate(value, i);
      ++place;
    }
  }
  Team::Sync();
  int begin = 0, end = shared->listed;
  bool wanted = true;  // of list[thread], where there are no more than threads
  if (end <= Team::kThreads) {
    const unsigned key = thread < end ? static_cast<unsigned>(list[thread] >> 32) : 0;
    // Where scaling has led to -infinity.
    wanted = thread < end && key != Ordered(-INFINITY);
    if (top_k && end > rules.top_k) {
      if (end <= 256) {
        int larger = 0;
        if (thread / 32 * 32 < end) {
#pragma unroll 4
          for (int i = 0; i < end; i += 4) {
            const uint4 others = reinterpret_cast<const uint4*>(shared->ranked)[i / 4];
            larger += (others.x > key ? 1 : 0) + (others.y > key ? 1 : 0) + (others.z > key ? 1 : 0) +
                      (others.w > key ? 1 : 0);
          }
        }
        wanted = wanted && larger < rules.top_k;
      } else {
        wanted = false;
      }
    }
  }
  if (end > Team::kThreads || (top_k && end > rules.top_k && end > 256)) {
    // Many that are alike: all are scaled, and the k-th largest is found bit by bit.
    Team::Sync();
#pragma unroll 1
    for (int i = thread; i < vocab; i += Team::kThreads) logits[i] = scale(logits[i]);
    const unsigned threshold = top_k ? KthLargest<Team>(logits, vocab, rules.top_k, shared) : 0;
    Team::Sync();
    end = ListFrom<Team>(logits, vocab, threshold, list, lists.room, shared);
    if (end > lists.room) {
      list = lists.all;
      end = ListFrom<Team>(logits, vocab, threshold, list, vocab, shared);
    }
    wanted = true;
  }
  if (rules.top_p < 1.0F) {
    if (end <= Team::kThreads) {
      const unsigned long long candidate = thread < end ? list[thread] : 0;
      Team::Sync();
      if (thread == 0) shared->listed = 0;
      Team::Sync();
      const bool stays = thread < end && wanted;
      const int place = Reserve(stays ? 1 : 0, &shared->listed);
      if (stays) list[place] = candidate;
      Team::Sync();
      end = shared->listed;
      wanted = true;
    }
    begin = CountBelowTopP<Team>(list, end, rules.top_p, shared);
  }

  // The highest of logit - log(-log(u)); among equals the lowest id. First in F32: mostly one is the highest by more
  // than that can err.
  const auto uniform = [&](unsigned candidate) {
    return UnitInterval(
        DrawBits(seed, static_cast<uint32_t>(frame), static_cast<uint32_t>(codebook), candidate, DrawPurpose::kGumbel));
  };
  unsigned long long rough = 0;
#pragma unroll 1
  for (int i = begin + thread; i < end && wanted; i += Team::kThreads) {
    const auto candidate = static_cast<unsigned>(list[i]);
    prefetch(static_cast<int>(candidate));
    const float u = uniform(candidate);
    // -log(u), also where u is next to 1.
    const float w = u > 0.5F ? -log1pf(u - 1.0F) : -__logf(u);
    const float value = Unordered(static_cast<unsigned>(list[i] >> 32)) - __logf(w);
    const unsigned long long key = Candidate(value, static_cast<int>(candidate));
    rough = key > rough ? key : rough;
  }
  const unsigned long long highest = BlockMax<Team>(rough, shared->scores);
  const float roughly = Unordered(static_cast<unsigned>(highest >> 32));
  const float enough = roughly - (1e-3F + fabsf(roughly) * 1e-6F);
  bool close = rough != highest && Unordered(static_cast<unsigned>(rough >> 32)) >= enough && rough != 0;
  // A thread with several knows only its highest.
  close = close || (end - begin > Team::kThreads && rough != 0);
  if (!Team::Any(close)) return static_cast<int>(static_cast<unsigned>(highest));

  unsigned long long score = 0;
  unsigned id = 0xFFFFFFFFU;
#pragma unroll 1
  for (int i = begin + thread; i < end && wanted; i += Team::kThreads) {
    const auto candidate = static_cast<unsigned>(list[i]);
    const double logit = Unordered(static_cast<unsigned>(list[i] >> 32));
    const unsigned long long s = Ordered(logit - log(-log(static_cast<double>(uniform(candidate)))));
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

// The talker's logit of `id` as it is chosen from: repetition penalty, and what may not come now.
__device__ __forceinline__ float TalkerLogit(float logit, int id, bool repeated, float penalty, int vocab, int eos_id,
                                             int chosen) {
  constexpr int kControlIds = 1024;  // the last ids, never codes
  constexpr int kMinIds = 2;         // before these no utterance ends
  if (penalty != 1.0F && repeated) logit = logit < 0 ? logit * penalty : logit / penalty;
  const bool forbidden = id == eos_id ? chosen < kMinIds : id >= vocab - kControlIds;
  return forbidden && !isnan(logit) ? -INFINITY : logit;
}

// How an utterance goes on whose talker chose `id` (below 0: nothing) after `chosen` ids.
__device__ __forceinline__ EndReason EndAfter(int id, int eos_id, int chosen, int64_t max_new_tokens) {
  if (id < 0) return EndReason::kError;
  if (id == eos_id) return EndReason::kComplete;
  return chosen + 1 >= max_new_tokens ? EndReason::kMaxDuration : EndReason::kNone;
}

// Notes that; by one thread.
__device__ __forceinline__ void TakeTalkerId(int id, EndReason end, int row, int groups, const FrameRows& frame,
                                             unsigned* history, SlotState* state) {
  state->chosen += 1;
  state->end = end;
  if (id < 0) {
    state->fault = ModelPart::kTalker;
  } else {
    history[id / 32] |= 1U << (id % 32);
  }
  if (end == EndReason::kNone) {
    state->codes[0] = id;
    frame.codes[row * groups] = id;
    atomicOr(frame.live + 1, 1);
  } else {
    frame.slots[row] = -1;
  }
}

// Notes the predictor's choice for `group`; by one thread. Where there is none the row's other codes mean nothing.
__device__ __forceinline__ void TakePredictorId(int id, int group, int row, int groups, const FrameRows& frame,
                                                SlotState* state) {
  if (id < 0) {
    state->end = EndReason::kError;
    state->fault = ModelPart::kPredictor;
    frame.slots[row] = -1;
    return;
  }
  state->codes[group] = id;
  frame.codes[row * groups + group] = id;
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RULES_SAMPLING_CUH_
