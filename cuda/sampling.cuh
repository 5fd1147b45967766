// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_SAMPLING_CUH_
#define QTTS_CUDA_SAMPLING_CUH_

#include <cstdint>

#include "device_math.cuh"
#include "frame.h"
#include "frame_state.h"
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

// What the threads of a choice share.
struct ChoiceMemory {
  unsigned long long best[2][32];
  unsigned ids[32];
  double sums[32];
  int histogram[256];
  unsigned prefix;
  int needed;
  bool complete;
  int survivors;
  int kept;
};

// The largest of all threads' values; every thread gets it. `memory` must not be in use.
template <typename Team>
__device__ __forceinline__ unsigned long long BlockMax(unsigned long long value, unsigned long long* memory) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const unsigned long long other = __shfl_xor_sync(~0U, value, offset);
    value = other > value ? other : value;
  }
  if (threadIdx.x % 32 == 0) memory[threadIdx.x / 32] = value;
  Team::Sync();
  value = memory[threadIdx.x % Team::kWarps];
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const unsigned long long other = __shfl_xor_sync(~0U, value, offset);
    value = other > value ? other : value;
  }
  return value;
}

// Sets what lies below the k-th largest key to 0; ties stay. Eight bits a pass, until the keys that
// share the found ones are all wanted.
template <typename Team, int kPerThread>
__device__ __forceinline__ void KeepTopK(unsigned (&keys)[kPerThread], int k, ChoiceMemory* shared) {
  if (threadIdx.x == 0) {
    shared->prefix = 0;
    shared->needed = k;
    shared->complete = false;
  }
#pragma unroll 1
  for (int shift = 24; shift >= 0; shift -= 8) {
    if (threadIdx.x < 256) shared->histogram[threadIdx.x] = 0;
    Team::Sync();
    if (shared->complete) break;
    const unsigned prefix = shared->prefix;
    const int needed = shared->needed;
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      const bool candidate = keys[j] != 0 && (shift == 24 || keys[j] >> (shift + 8) == prefix >> (shift + 8));
      if (candidate) atomicAdd(&shared->histogram[keys[j] >> shift & 255U], 1);
    }
    Team::Sync();
    if (threadIdx.x < 32) {
      const int lane = static_cast<int>(threadIdx.x);
      int counts[8];
      int total = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        counts[i] = shared->histogram[255 - (lane * 8 + i)];
        total += counts[i];
      }
      int through = total;  // keys in this lane's bins and those above
#pragma unroll
      for (int offset = 1; offset < 32; offset *= 2) {
        const int below = __shfl_up_sync(~0U, through, offset);
        if (lane >= offset) through += below;
      }
      int above = through - total;
      if (above < needed && through >= needed) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          if (above < needed && above + counts[i] >= needed) {
            shared->prefix = prefix | static_cast<unsigned>(255 - (lane * 8 + i)) << shift;
            shared->needed = needed - above;
            shared->complete = needed - above == counts[i];
          }
          above += counts[i];
        }
      }
    }
    Team::Sync();
  }
  Team::Sync();
  const unsigned threshold = shared->prefix;
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    if (keys[j] < threshold) keys[j] = 0;
  }
}

// Sets the least likely keys, whose probabilities sum to no more than 1 - p, to 0; one always stays.
// Among equals the lower ids go first. `sorted` has room for all keys, rounded up to a power of two.
template <typename Team, int kPerThread>
__device__ __forceinline__ void KeepTopP(unsigned (&keys)[kPerThread], float p, unsigned largest_key,
                                         unsigned long long* sorted, ChoiceMemory* shared) {
  if (threadIdx.x == 0) shared->survivors = 0;
  Team::Sync();
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    const unsigned id = threadIdx.x + j * Team::kThreads;
    if (keys[j] != 0) {
      sorted[atomicAdd(&shared->survivors, 1)] = static_cast<unsigned long long>(keys[j]) << 32 | id;
    }
  }
  Team::Sync();
  const int n = shared->survivors;
  int size = 1;
  while (size < n) size *= 2;
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
  const double largest = Unordered(largest_key);
  const int share = (n + Team::kThreads - 1) / Team::kThreads;  // consecutive keys of a thread
  const int begin = min(n, static_cast<int>(threadIdx.x) * share);
  const int end = min(n, begin + share);
  const auto weight = [&](int i) { return exp(Unordered(static_cast<unsigned>(sorted[i] >> 32)) - largest); };
  double mine = 0;
  for (int i = begin; i < end; ++i) mine += weight(i);
  double through = mine;
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const double below = __shfl_up_sync(~0U, through, offset);
    if (lane >= offset) through += below;
  }
  if (lane == 31) shared->sums[threadIdx.x / 32] = through;
  if (threadIdx.x == 0) shared->survivors = 0;
  Team::Sync();
  double before = 0, total = 0;
  for (int w = 0; w < Team::kWarps; ++w) {
    if (w < static_cast<int>(threadIdx.x / 32)) before += shared->sums[w];
    total += shared->sums[w];
  }
  double cumulative = before + (through - mine);
  int dropped = 0;
  for (int i = begin; i < end && i + 1 < n; ++i) {
    cumulative += weight(i);
    if (cumulative / total <= 1.0 - static_cast<double>(p)) ++dropped;
  }
  if (dropped != 0) atomicAdd(&shared->survivors, dropped);
  Team::Sync();
  const unsigned long long first_kept = sorted[shared->survivors];
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    const unsigned id = threadIdx.x + j * Team::kThreads;
    if (keys[j] != 0 && (static_cast<unsigned long long>(keys[j]) << 32 | id) < first_kept) keys[j] = 0;
  }
  Team::Sync();
}

// Chooses from the team's logits, thread t holding ids t, t + kThreads, …; -infinity marks what cannot be
// chosen. Below 0 if the logits hold a NaN or +infinity, or nothing can be chosen.
template <typename Team, int kPerThread>
__device__ __forceinline__ int Choose(float (&logits)[kPerThread], int vocab, const SamplingRules& rules, uint64_t seed,
                                      int frame, int codebook, unsigned long long* sorted, ChoiceMemory* shared) {
  if (threadIdx.x == 0) shared->kept = 0;
  bool bad = false;
  unsigned long long first = 0;
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    const unsigned id = threadIdx.x + j * Team::kThreads;
    if (isnan(logits[j]) || logits[j] == INFINITY) {
      bad = true;
      logits[j] = -INFINITY;
    }
    if (logits[j] == -INFINITY) continue;
    const unsigned long long key = static_cast<unsigned long long>(Ordered(logits[j])) << 32 | (0xFFFFFFFFU - id);
    first = key > first ? key : first;
  }
  if (Team::Any(bad)) return -1;
  const unsigned long long largest = BlockMax<Team>(first, shared->best[0]);
  if (largest == 0) return -1;
  if (rules.do_sample == 0) return static_cast<int>(0xFFFFFFFFU - static_cast<unsigned>(largest));

  const float most = Unordered(static_cast<unsigned>(largest >> 32));
  unsigned keys[kPerThread];  // 0: not to be chosen
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    // A tiny temperature must not carry the largest logits to infinity, where they would tie.
    if (rules.temperature != 1.0F) logits[j] = (logits[j] - most) / rules.temperature;
    keys[j] = logits[j] == -INFINITY ? 0 : Ordered(logits[j]);
  }
  if (rules.top_k > 0 && rules.top_k < vocab) KeepTopK<Team>(keys, rules.top_k, shared);
  if (rules.top_p < 1.0F) {
    KeepTopP<Team>(keys, rules.top_p, Ordered(rules.temperature != 1.0F ? 0.0F : most), sorted, shared);
  }

  // What may be chosen, side by side: few of many, so that threads share the work.
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    if (keys[j] == 0) continue;
    const unsigned id = threadIdx.x + j * Team::kThreads;
    sorted[atomicAdd(&shared->kept, 1)] = static_cast<unsigned long long>(__float_as_uint(logits[j])) << 32 | id;
  }
  Team::Sync();
  unsigned long long score = 0;
  unsigned id = 0xFFFFFFFFU;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < shared->kept; i += Team::kThreads) {
    const auto candidate = static_cast<unsigned>(sorted[i]);
    const double logit = __uint_as_float(static_cast<unsigned>(sorted[i] >> 32));
    const double u = UnitInterval(
        DrawBits(seed, static_cast<uint32_t>(frame), static_cast<uint32_t>(codebook), candidate, DrawPurpose::kGumbel));
    const unsigned long long s = Ordered(logit - log(-log(u)));
    if (s > score || (s == score && candidate < id)) {
      score = s;
      id = candidate;
    }
  }
  // The highest score; among equals the lowest id.
  const auto better = [&](unsigned long long other, unsigned other_id) {
    if (other > score || (other == score && other_id < id)) {
      score = other;
      id = other_id;
    }
  };
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    better(__shfl_xor_sync(~0U, score, offset), __shfl_xor_sync(~0U, id, offset));
  }
  if (threadIdx.x % 32 == 0) {
    shared->best[1][threadIdx.x / 32] = score;
    shared->ids[threadIdx.x / 32] = id;
  }
  Team::Sync();
  score = shared->best[1][threadIdx.x % Team::kWarps];
  id = shared->ids[threadIdx.x % Team::kWarps];
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    better(__shfl_xor_sync(~0U, score, offset), __shfl_xor_sync(~0U, id, offset));
  }
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
__device__ __forceinline__ SlotEnd EndAfter(int id, int eos_id, int chosen, int64_t max_new_tokens) {
  if (id < 0) return SlotEnd::kFault;
  if (id == eos_id) return SlotEnd::kEndOfSpeech;
  return chosen + 1 >= max_new_tokens ? SlotEnd::kMaxTokens : SlotEnd::kRunning;
}

// Notes that; by one thread.
__device__ __forceinline__ void TakeTalkerId(int id, SlotEnd end, int row, int groups, const FrameRows& frame,
                                             unsigned* history, SlotState* state) {
  state->chosen += 1;
  state->end = end;
  if (id < 0) {
    state->fault = SlotFault::kTalker;
  } else {
    history[id / 32] |= 1U << (id % 32);
  }
  if (end == SlotEnd::kRunning) {
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
    state->end = SlotEnd::kFault;
    state->fault = SlotFault::kPredictor;
    frame.slots[row] = -1;
    return;
  }
  state->codes[group] = id;
  frame.codes[row * groups + group] = id;
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_SAMPLING_CUH_
