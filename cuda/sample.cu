// SPDX-License-Identifier: LGPL-2.1-or-later
#include <bit>

#include "device_math.cuh"
#include "sample.h"
#include "sampling.cuh"

namespace qtts::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kPerThread = kMaxVocab / kThreads;
using Team = WholeBlock<kThreads>;

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
  __shared__ ChoiceMemory shared;
  __shared__ float warp_squares[kWarps];
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
    logits[j] = TalkerLogit(Fresh(a.logits + static_cast<int64_t>(row) * a.vocab + id), id, (repeated >> j & 1U) != 0,
                            penalty, a.vocab, a.eos_id, chosen);
  }
  float squares = 0;
  if (a.hidden != nullptr) {
    for (int i = threadIdx.x; i < a.code.width; i += kThreads) {
      const float x = Fresh(a.x + static_cast<int64_t>(row) * a.code.stride + i);
      squares += x * x;
    }
    squares = WarpSum(squares);
    if (threadIdx.x % 32 == 0) warp_squares[threadIdx.x / 32] = squares;
  }
  const int id = Choose<Team>(logits, a.vocab, rules, seed, chosen, 0, sorted, &shared);
  const SlotEnd end = EndAfter(id, a.eos_id, chosen, max_new_tokens);
  if (threadIdx.x == 0) TakeTalkerId(id, end, row, groups, frame, history, &state);
  if (end != SlotEnd::kRunning) return;
  Embed<T>(a.code, row, id);
  if (a.hidden != nullptr) {
    float total = 0;
    for (int w = 0; w < kWarps; ++w) total += warp_squares[w];
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
  __shared__ ChoiceMemory shared;
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
  const int id = Choose<Team>(logits, a.vocab, rules, seed, number, a.group, sorted, &shared);
  if (threadIdx.x == 0) TakePredictorId(id, a.group, row, groups, frame, &state);
  if (id < 0) return;
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
