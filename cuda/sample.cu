// SPDX-License-Identifier: LGPL-2.1-or-later
#include <bit>

#include "device_math.cuh"
#include "sample.h"
#include "sampling/philox.h"

namespace qtts::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kPerThread = kMaxVocab / kThreads;
constexpr int kControlIds = 1024;  // the talker's last ids, never codes
constexpr int kMinIds = 2;         // before these no utterance ends

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

struct Shared {
  unsigned long long best[2][kWarps];
  unsigned ids[kWarps];
  float squares[kWarps];
  double sums[kWarps];
  int histogram[256];
  unsigned prefix;
  int needed;
  bool complete;
  int survivors;
};

// The largest of all threads' values; every thread gets it. `memory` must not be in use.
__device__ unsigned long long BlockMax(unsigned long long value, unsigned long long* memory) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const unsigned long long other = __shfl_xor_sync(~0U, value, offset);
    value = other > value ? other : value;
  }
  if (threadIdx.x % 32 == 0) memory[threadIdx.x / 32] = value;
  __syncthreads();
  value = memory[threadIdx.x % 32];
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const unsigned long long other = __shfl_xor_sync(~0U, value, offset);
    value = other > value ? other : value;
  }
  return value;
}

// Sets what lies below the k-th largest key to 0; ties stay. Eight bits a pass, until the keys that
// share the found ones are all wanted.
__device__ void KeepTopK(unsigned (&keys)[kPerThread], int k, Shared* shared) {
  if (threadIdx.x == 0) {
    shared->prefix = 0;
    shared->needed = k;
    shared->complete = false;
  }
  for (int shift = 24; shift >= 0; shift -= 8) {
    if (threadIdx.x < 256) shared->histogram[threadIdx.x] = 0;
    __syncthreads();
    if (shared->complete) break;
    const unsigned prefix = shared->prefix;
    const int needed = shared->needed;
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      const bool candidate = keys[j] != 0 && (shift == 24 || keys[j] >> (shift + 8) == prefix >> (shift + 8));
      if (candidate) atomicAdd(&shared->histogram[keys[j] >> shift & 255U], 1);
    }
    __syncthreads();
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
    __syncthreads();
  }
  __syncthreads();
  const unsigned threshold = shared->prefix;
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    if (keys[j] < threshold) keys[j] = 0;
  }
}

// Sets the least likely keys, whose probabilities sum to no more than 1 - p, to 0; one always stays.
// Among equals the lower ids go first. `sorted` has room for all keys, rounded up to a power of two.
__device__ void KeepTopP(unsigned (&keys)[kPerThread], float p, unsigned largest_key, unsigned long long* sorted,
                         Shared* shared) {
  if (threadIdx.x == 0) shared->survivors = 0;
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    const unsigned id = threadIdx.x + j * kThreads;
    if (keys[j] != 0) {
      sorted[atomicAdd(&shared->survivors, 1)] = static_cast<unsigned long long>(keys[j]) << 32 | id;
    }
  }
  __syncthreads();
  const int n = shared->survivors;
  int size = 1;
  while (size < n) size *= 2;
  for (int i = n + static_cast<int>(threadIdx.x); i < size; i += kThreads) sorted[i] = ~0ULL;
  __syncthreads();
  for (int block = 2; block <= size; block *= 2) {
    for (int distance = block / 2; distance > 0; distance /= 2) {
      for (int i = static_cast<int>(threadIdx.x); i < size; i += kThreads) {
        const int other = i ^ distance;
        if (other <= i) continue;
        const bool ascending = (i & block) == 0;
        if ((sorted[i] > sorted[other]) == ascending) {
          const unsigned long long held = sorted[i];
          sorted[i] = sorted[other];
          sorted[other] = held;
        }
      }
      __syncthreads();
    }
  }
  const double largest = Unordered(largest_key);
  const int share = (n + kThreads - 1) / kThreads;  // consecutive keys of a thread
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
  __syncthreads();
  double before = 0, total = 0;
  for (int w = 0; w < kWarps; ++w) {
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
  __syncthreads();
  const unsigned long long first_kept = sorted[shared->survivors];
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    const unsigned id = threadIdx.x + j * kThreads;
    if (keys[j] != 0 && (static_cast<unsigned long long>(keys[j]) << 32 | id) < first_kept) keys[j] = 0;
  }
}

// Chooses from the block's logits, thread t holding ids t, t + kThreads, …; -infinity marks what cannot be
// chosen. Below 0 if the logits hold a NaN or +infinity, or nothing can be chosen.
__device__ int Choose(float (&logits)[kPerThread], int vocab, const SamplingRules& rules, uint64_t seed, int frame,
                      int codebook, unsigned long long* sorted, Shared* shared) {
  bool bad = false;
  unsigned long long first = 0;
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    const unsigned id = threadIdx.x + j * kThreads;
    if (isnan(logits[j]) || logits[j] == INFINITY) {
      bad = true;
      logits[j] = -INFINITY;
    }
    if (logits[j] == -INFINITY) continue;
    const unsigned long long key = static_cast<unsigned long long>(Ordered(logits[j])) << 32 | (0xFFFFFFFFU - id);
    first = key > first ? key : first;
  }
  if (__syncthreads_or(bad)) return -1;
  const unsigned long long largest = BlockMax(first, shared->best[0]);
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
  if (rules.top_k > 0 && rules.top_k < vocab) KeepTopK(keys, rules.top_k, shared);
  if (rules.top_p < 1.0F) {
    KeepTopP(keys, rules.top_p, Ordered(rules.temperature != 1.0F ? 0.0F : most), sorted, shared);
  }

  unsigned long long score = 0;
  unsigned id = 0xFFFFFFFFU;
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    if (keys[j] == 0) continue;
    const unsigned candidate = threadIdx.x + j * kThreads;
    const double u = UnitInterval(
        DrawBits(seed, static_cast<uint32_t>(frame), static_cast<uint32_t>(codebook), candidate, DrawPurpose::kGumbel));
    const unsigned long long s = Ordered(static_cast<double>(logits[j]) - log(-log(u)));
    if (s > score) {
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
  __syncthreads();
  score = shared->best[1][threadIdx.x % 32];
  id = shared->ids[threadIdx.x % 32];
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    better(__shfl_xor_sync(~0U, score, offset), __shfl_xor_sync(~0U, id, offset));
  }
  return static_cast<int>(id);
}

template <typename T>
__device__ void Embed(const SampleTarget& target, int row, int code) {
  if (target.table == nullptr) return;
  const T* const source = static_cast<const T*>(target.table) + static_cast<int64_t>(code) * target.stride;
  for (int i = threadIdx.x; i < target.width; i += kThreads) target.x[row * target.x_stride + i] = ToFloat(source[i]);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    TalkerKernel(TalkerSample a, FrameRows frame, SlotState* slots, int groups) {
  extern __shared__ unsigned long long sorted[];
  __shared__ Shared shared;
  // All but the logits was there before the previous kernel.
  const int row = blockIdx.x;
  const int slot = Fresh(frame.slots + row);
  if (slot < 0) {
    WaitForPrevious();
    LetNextStart();
    return;
  }
  SlotState& state = slots[slot];
  unsigned* const history = a.history + static_cast<int64_t>(slot) * a.history_words;
  const int chosen = state.chosen;
  const float penalty = state.repetition_penalty;
  const SamplingRules rules = state.talker;
  const uint64_t seed = state.seed;
  const int64_t max_new_tokens = state.max_new_tokens;
  unsigned repeated = 0;  // bit j: this thread's id j was chosen before
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    const int id = static_cast<int>(threadIdx.x) + j * kThreads;
    if (id < a.vocab) repeated |= (history[id / 32] >> (id % 32) & 1U) << j;
  }

  WaitForPrevious();
  LetNextStart();
  float logits[kPerThread];
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    const int id = static_cast<int>(threadIdx.x) + j * kThreads;
    if (id >= a.vocab) {
      logits[j] = -INFINITY;
      continue;
    }
    float logit = Fresh(a.logits + static_cast<int64_t>(row) * a.vocab + id);
    if (penalty != 1.0F && (repeated >> j & 1U) != 0) {
      logit = logit < 0 ? logit * penalty : logit / penalty;
    }
    const bool forbidden = id == a.eos_id ? chosen < kMinIds : id >= a.vocab - kControlIds;
    if (forbidden && !isnan(logit)) logit = -INFINITY;
    logits[j] = logit;
  }
  float squares = 0;
  if (a.hidden != nullptr) {
    for (int i = threadIdx.x; i < a.code.width; i += kThreads) {
      const float x = Fresh(a.x + static_cast<int64_t>(row) * a.code.stride + i);
      squares += x * x;
    }
    squares = WarpSum(squares);
    if (threadIdx.x % 32 == 0) shared.squares[threadIdx.x / 32] = squares;
  }
  const int id = Choose(logits, a.vocab, rules, seed, chosen, 0, sorted, &shared);
  const SlotEnd end = id < 0                         ? SlotEnd::kFault
                      : id == a.eos_id               ? SlotEnd::kEndOfSpeech
                      : chosen + 1 >= max_new_tokens ? SlotEnd::kMaxTokens
                                                     : SlotEnd::kRunning;
  if (threadIdx.x == 0) {
    state.chosen = chosen + 1;
    state.end = end;
    if (id < 0) {
      state.fault = SlotFault::kTalker;
    } else {
      history[id / 32] |= 1U << (id % 32);
    }
    if (end == SlotEnd::kRunning) {
      state.codes[0] = id;
      frame.codes[row * groups] = id;
      atomicOr(frame.live + 1, 1);
    } else {
      frame.slots[row] = -1;
    }
  }
  if (end != SlotEnd::kRunning) return;
  Embed<T>(a.code, row, id);
  if (a.hidden != nullptr) {
    float total = 0;
    for (int w = 0; w < kWarps; ++w) total += shared.squares[w];
    const float factor = 1.0F / sqrtf(total / static_cast<float>(a.code.width) + a.eps);
    for (int i = threadIdx.x; i < a.code.width; i += kThreads) {
      a.hidden[row * a.code.x_stride + i] =
          Fresh(a.x + static_cast<int64_t>(row) * a.code.stride + i) * factor * a.norm[i];
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    PredictorKernel(PredictorSample a, FrameRows frame, SlotState* slots, int groups) {
  extern __shared__ unsigned long long sorted[];
  __shared__ Shared shared;
  // All but the logits was there before the previous kernel.
  const int row = blockIdx.x;
  const int slot = Fresh(frame.slots + row);
  if (slot < 0) {
    WaitForPrevious();
    LetNextStart();
    return;
  }
  SlotState& state = slots[slot];
  const SamplingRules rules = state.predictor;
  const int number = state.chosen - 1;
  const uint64_t seed = state.seed;
  WaitForPrevious();
  LetNextStart();
  float logits[kPerThread];
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    const int id = static_cast<int>(threadIdx.x) + j * kThreads;
    logits[j] = id < a.vocab ? Fresh(a.logits + static_cast<int64_t>(row) * a.vocab + id) : -INFINITY;
  }
  const int id = Choose(logits, a.vocab, rules, seed, number, a.group, sorted, &shared);
  if (id < 0) {
    // The row's other codes mean nothing; later passes of this frame skip it.
    if (threadIdx.x == 0) {
      state.end = SlotEnd::kFault;
      state.fault = SlotFault::kPredictor;
      frame.slots[row] = -1;
    }
    return;
  }
  if (threadIdx.x == 0) {
    state.codes[a.group] = id;
    frame.codes[row * groups + a.group] = id;
  }
  Embed<T>(a.code, row, id);
}

size_t SortBytes(int vocab) { return std::bit_ceil(static_cast<unsigned>(vocab)) * sizeof(unsigned long long); }

}  // namespace

void SampleTalker(const Launcher& launch, Precision precision, const TalkerSample& sample, const FrameRows& frame,
                  SlotState* slots, int groups, int rows) {
  const auto kernel = precision == Precision::kF32 ? TalkerKernel<float> : TalkerKernel<__nv_bfloat16>;
  launch(kernel, dim3(static_cast<unsigned>(rows)), kThreads, SortBytes(sample.vocab), sample, frame, slots, groups);
}

void SamplePredictor(const Launcher& launch, Precision precision, const PredictorSample& sample, const FrameRows& frame,
                     SlotState* slots, int groups, int rows) {
  const auto kernel = precision == Precision::kF32 ? PredictorKernel<float> : PredictorKernel<__nv_bfloat16>;
  launch(kernel, dim3(static_cast<unsigned>(rows)), kThreads, SortBytes(sample.vocab), sample, frame, slots, groups);
}

}  // namespace qtts::cuda
