// SPDX-License-Identifier: LGPL-2.1-or-later
#include "frame/outcome.cuh"
#include "rules/norm.cuh"
#include "rules/penalty.cuh"
#include "rules/sampling.cuh"
#include "runtime/device_math.cuh"
#include "sample/sample.h"

namespace qtts::cuda {
namespace {

// Threads of a row: many, as long as there is an SM for each row, else few.
constexpr int kManyThreads = 1024;
constexpr int kFewThreads = 256;
constexpr int BlocksTogether(int threads) { return threads == kManyThreads ? 1 : 4; }

// Returns a power of two.
__host__ __device__ constexpr int ListKeys(int vocab) {
  int keys = 1;
  while (keys < vocab) keys *= 2;
  return keys;
}

template <typename T, int kThreads>
__device__ void Embed(const SampleTarget& target, int row, int code) {
  if (target.table == nullptr) return;
  const T* const source = static_cast<const T*>(target.table) + static_cast<int64_t>(code) * target.stride;
  for (int i = threadIdx.x; i < target.width; i += kThreads) target.x[row * target.x_stride + i] = ToFloat(source[i]);
}

template <typename T, int kThreads>
__global__ void __launch_bounds__(kThreads, BlocksTogether(kThreads))
    TalkerKernel(TalkerSample a, FrameRows frame, SlotState* slots, int groups) {
  constexpr int kPerThread = kMaxVocab / kThreads;
  using Team = WholeBlock<kThreads>;
  extern __shared__ unsigned long long list[];
  __shared__ SamplingMemory shared;
  __shared__ float squares[kShares];
  // All but the logits was there before the previous kernel.
  const int row = blockIdx.x;
  const int slot = LoadL2(frame.slots + row);
  if (slot < 0) {
    WaitForPrevious();
    LetNextStart();
    return;
  }
  SlotState& state = slots[slot];
  unsigned* const history = a.history + static_cast<int64_t>(slot) * a.history_words;
  const int chosen = state.chosen;
  const HistoryRules history_rules = state.history_rules;
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
  auto* const logits = reinterpret_cast<float*>(list + ListKeys(a.vocab));
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    const int id = static_cast<int>(threadIdx.x) + j * kThreads;
    if (id >= a.vocab) break;
    logits[id] = TalkerLogit(LoadL2(a.logits + static_cast<int64_t>(row) * a.vocab + id), id, (repeated >> j & 1U) != 0,
                             history_rules, a.vocab, a.eos_id, chosen);
  }
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (a.hidden != nullptr && warp < kShares) {
    const float square = WarpSquares(a.x + static_cast<int64_t>(row) * a.code.stride, a.code.width, warp,
                                     static_cast<int>(threadIdx.x) % 32);
    if (threadIdx.x % 32 == 0) squares[warp] = square;
  }
  const int id = SampleToken<Team>(logits, a.vocab, rules, {seed, chosen, 0}, {list, ListKeys(a.vocab), list}, &shared,
                                   [](int) {});
  const EndReason end = EndAfter(id, a.eos_id, chosen, max_new_tokens);
  if (threadIdx.x == 0) TakeTalkerId(id, end, row, groups, frame, history, &state);
  if (end != EndReason::kNone) return;
  Embed<T, kThreads>(a.code, row, id);
  if (a.hidden != nullptr) {
    const float factor = NormFactor(squares, 1, a.code.width, a.eps);
    for (int i = threadIdx.x; i < a.code.width; i += kThreads) {
      a.hidden[row * a.code.x_stride + i] =
          LoadL2(a.x + static_cast<int64_t>(row) * a.code.stride + i) * factor * a.norm[i];
    }
  }
}

template <typename T, int kThreads>
__global__ void __launch_bounds__(kThreads, BlocksTogether(kThreads))
    PredictorKernel(PredictorSample a, FrameRows frame, SlotState* slots, int groups) {
  constexpr int kPerThread = kMaxVocab / kThreads;
  using Team = WholeBlock<kThreads>;
  extern __shared__ unsigned long long list[];
  __shared__ SamplingMemory shared;
  // All but the logits was there before the previous kernel.
  const int row = blockIdx.x;
  const int slot = LoadL2(frame.slots + row);
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
  auto* const logits = reinterpret_cast<float*>(list + ListKeys(a.vocab));
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    const int id = static_cast<int>(threadIdx.x) + j * kThreads;
    if (id < a.vocab) logits[id] = LoadL2(a.logits + static_cast<int64_t>(row) * a.vocab + id);
  }
  const int id = SampleToken<Team>(logits, a.vocab, rules, {seed, number, a.group}, {list, ListKeys(a.vocab), list},
                                   &shared, [](int) {});
  if (threadIdx.x == 0) TakePredictorId(id, a.group, row, groups, frame, &state);
  if (id < 0) return;
  Embed<T, kThreads>(a.code, row, id);
}

bool HasFewThreads(const Launcher& launch, int rows) { return rows > launch.numbers->sampling.rows_of_many_threads; }

size_t ListBytes(int vocab) {
  return static_cast<size_t>(ListKeys(vocab)) * sizeof(unsigned long long) + static_cast<size_t>(vocab) * sizeof(float);
}

}  // namespace

void SampleTalker(const Launcher& launch, Precision precision, const TalkerSample& sample, const FrameRows& frame,
                  SlotState* slots, int groups, int rows) {
  const auto run = [&](auto kernel, int threads) {
    launch(kernel, dim3(static_cast<unsigned>(rows)), threads, ListBytes(sample.vocab), sample, frame, slots, groups);
  };
  const bool few = HasFewThreads(launch, rows);
  if (precision == Precision::kF32) {
    few ? run(TalkerKernel<float, kFewThreads>, kFewThreads) : run(TalkerKernel<float, kManyThreads>, kManyThreads);
  } else {
    few ? run(TalkerKernel<__nv_bfloat16, kFewThreads>, kFewThreads)
        : run(TalkerKernel<__nv_bfloat16, kManyThreads>, kManyThreads);
  }
}

void SamplePredictor(const Launcher& launch, Precision precision, const PredictorSample& sample, const FrameRows& frame,
                     SlotState* slots, int groups, int rows) {
  const auto run = [&](auto kernel, int threads) {
    launch(kernel, dim3(static_cast<unsigned>(rows)), threads, ListBytes(sample.vocab), sample, frame, slots, groups);
  };
  const bool few = HasFewThreads(launch, rows);
  if (precision == Precision::kF32) {
    few ? run(PredictorKernel<float, kFewThreads>, kFewThreads)
        : run(PredictorKernel<float, kManyThreads>, kManyThreads);
  } else {
    few ? run(PredictorKernel<__nv_bfloat16, kFewThreads>, kFewThreads)
        : run(PredictorKernel<__nv_bfloat16, kManyThreads>, kManyThreads);
  }
}

}  // namespace qtts::cuda
