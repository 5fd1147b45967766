// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RULES_CANDIDATES_CUH_
#define QTTS_CUDA_RULES_CANDIDATES_CUH_

#include <cstdint>

#include "runtime/device_math.cuh"

// Common parts of the sampling rules: teams of threads, logits in integer order, lists of candidates.
//
// `Team` has kThreads and kWarps (at most 32, a power of two), thread numbers threadIdx.x below kThreads, Sync() and
// Any(bool).
namespace qtts::cuda {

// All threads of a block.
template <int kBlockThreads>
struct WholeBlock {
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kWarps = kThreads / 32;
  static __device__ void Sync() { __syncthreads(); }
  static __device__ bool Any(bool value) { return __syncthreads_or(value) != 0; }
};

// Returns floats as integers of the same order; no NaN.
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

// Returns a logit and its id, in the order of logits, then ids.
__device__ __forceinline__ unsigned long long Candidate(float logit, int id) {
  return static_cast<unsigned long long>(Ordered(logit)) << 32 | static_cast<unsigned>(id);
}

// Memory for lists of candidates.
struct CandidateLists {
  unsigned long long* few;  // room for `room`, a power of two, no fewer than the team's threads or all logits
  int room;
  unsigned long long* all;  // room for all logits, rounded up to a power of two; for when they are more, may be `few`
};

// The candidates left by the rules so far: entries [begin, end) of `list`.
struct Candidates {
  unsigned long long* list;
  int begin, end;
  bool wanted;  // whether list[thread] is one of them, where there are no more than threads
};

// Shared memory of a team that samples.
struct SamplingMemory {
  unsigned long long best[32];
  unsigned long long scores[32];
  unsigned ids[32];
  double sums[32];
  alignas(16) int histogram[256];
  alignas(16) unsigned ranked[256];  // the first of the list, as Ordered() has them; zeros behind
  int listed, dropped;
};

// Returns the largest of a warp's values.
__device__ __forceinline__ unsigned long long WarpMax(unsigned long long value) {
  const auto high = static_cast<unsigned>(value >> 32);
  const unsigned most = __reduce_max_sync(~0U, high);
  const unsigned low = __reduce_max_sync(~0U, high == most ? static_cast<unsigned>(value) : 0);
  return static_cast<unsigned long long>(most) << 32 | low;
}

// Returns the largest of all threads' values; every thread gets it. `memory` must not be in use.
template <typename Team>
__device__ __forceinline__ unsigned long long BlockMax(unsigned long long value, unsigned long long* memory) {
  value = WarpMax(value);
  if (threadIdx.x % 32 == 0) memory[threadIdx.x / 32] = value;
  Team::Sync();
  return WarpMax(memory[threadIdx.x % Team::kWarps]);
}

// Allocates list entries for each thread and returns the start of its own. All lanes of a warp take part.
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

// Logits that a thread loads together, so that the loads overlap.
template <typename Team>
inline constexpr int kBatch = 2048 / Team::kThreads;

// A thread's largest logit, and where; whether one is NaN or +infinity.
struct LargestLogit {
  float logit;
  int id;
  bool bad;
};

template <typename Team>
__device__ __forceinline__ LargestLogit ScanLogits(const float* logits, int vocab) {
  constexpr int kStep = kBatch<Team> * Team::kThreads;
  LargestLogit mine = {-INFINITY, 0, false};
#pragma unroll 1
  for (int base = static_cast<int>(threadIdx.x); base < vocab; base += kStep) {
#pragma unroll
    for (int j = 0; j < kBatch<Team>; ++j) {
      const int i = base + j * Team::kThreads;
      const float logit = i < vocab ? logits[i] : -INFINITY;
      mine.bad = mine.bad || !(logit < INFINITY);
      if (logit > mine.logit) {
        mine.logit = logit;
        mine.id = i;
      }
    }
  }
  return mine;
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RULES_CANDIDATES_CUH_
