// SPDX-License-Identifier: LGPL-2.1-or-later
#include "attention/attend_block.cuh"
#include "attention/text_scores.h"
#include "rules/softmax.cuh"
#include "runtime/device_math.cuh"

namespace qtts::cuda {
namespace {

using attention::HeadPlacer;

struct KeepArguments {
  const int* slots;
  const int* positions;
  int qkv_width, head, head_dim;
  const float* norm;
  const float* inverse_frequencies;
  float eps;
  const float* qkv;
  float* queries;
};

__global__ void __launch_bounds__(32) KeepQueryKernel(KeepArguments a) {
  const int row = blockIdx.x;
  const int64_t slot = LoadL2(a.slots + row);
  const int position = LoadL2(a.positions + row);
  const bool idle = slot < 0 || position < 0;
  const HeadPlacer<> placer(a.norm, a.inverse_frequencies, idle ? 0 : a.head_dim, max(0, position),
                            static_cast<int>(threadIdx.x));
  WaitForPrevious();
  LetNextStart();
  if (idle) return;
  float* const query = a.queries + slot * a.head_dim;
  placer.Place(a.qkv + static_cast<int64_t>(row) * a.qkv_width + a.head * a.head_dim, a.eps,
               [&](int i, float value) { query[i] = value; });
}

// The order of sums: positions of a block's step of kStep are dealt out to groups of kLanes lanes, which add up theirs
// in order; then groups are added pairwise, then warps pairwise. Text and all else are summed apart, so that a small
// share of the text keeps its digits.
constexpr int kWarps = 16;
constexpr int kThreads = 32 * kWarps;
constexpr int kTurns = 8;  // positions of a group in a step

// Sum of exp(score - most).
struct ScoreSum {
  float most, sum;

  __device__ __forceinline__ static ScoreSum Empty() { return {-INFINITY, 0}; }
  // 0 for a part without positions.
  __device__ __forceinline__ static float Factor(float most, float largest) {
    return most == -INFINITY ? 0 : expf(most - largest);
  }

  // Adds the scores of the turns for which has(turn).
  template <typename Has>
  __device__ __forceinline__ void Add(const float (&scores)[kTurns], const Has& has) {
    float largest = most;
#pragma unroll
    for (int t = 0; t < kTurns; ++t) largest = has(t) ? fmaxf(largest, scores[t]) : largest;
    sum *= Factor(most, largest);
#pragma unroll
    for (int t = 0; t < kTurns; ++t) sum += has(t) ? expf(scores[t] - largest) : 0;
    most = largest;
  }

  // Adds that of the lanes `first`, 2 * first … away, up to half a warp; every lane has the result.
  __device__ __forceinline__ void AddLanes(int first) {
    for (int offset = first; offset < 32; offset *= 2) {
      const float other_most = __shfl_xor_sync(~0U, most, offset);
      const float other_sum = __shfl_xor_sync(~0U, sum, offset);
      const float largest = fmaxf(most, other_most);
      // The same in both lanes: a sum of two products does not depend on their order, unless one is fused.
      sum = __fadd_rn(__fmul_rn(sum, Factor(most, largest)), __fmul_rn(other_sum, Factor(other_most, largest)));
      most = largest;
    }
  }
};

struct ScoreArguments {
  FrameRows frame;
  FrameRing ring;
  void* const* pages;
  int pages_per_sequence;
  int layer, kv_heads, kv_head, head_dim, window;
  const float* queries;
  FrameRowResult* results;
};

template <typename T, int kLanes>
__global__ void __launch_bounds__(kThreads) ScoreKernel(ScoreArguments a) {
  constexpr int kTogether = 32 / kLanes;
  constexpr int kTurn = kWarps * kTogether;
  constexpr int kStep = kTurns * kTurn;
  __shared__ ScoreSum text_sums[kWarps], other_sums[kWarps];
  __shared__ float window_scores[kTextScores];
  const int row = blockIdx.x;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int part = lane % kLanes;
  WaitForPrevious();
  LetNextStart();
  // All at once: one after the other they would take longer than the keys.
  const int slot = LoadL2(a.frame.slots + row);
  const int position = LoadL2(a.frame.positions + row);
  const int* const words = reinterpret_cast<const int*>(a.frame.windows + row);
  static_assert(sizeof(TextWindow) == 3 * sizeof(int));
  const TextWindow window = {LoadL2(words), LoadL2(words + 1), LoadL2(words + 2)};
  const unsigned entry = *a.frame.frame % static_cast<unsigned>(a.ring.entries);
  if (slot < 0 || window.text_end <= window.text_begin) return;
  RowTextScores& result = a.results[static_cast<int64_t>(entry) * a.ring.rows + row].text;
  const int text_end = min(window.text_end, position + 1);
  const int first_seen = FirstSeen(a, position);
  if (window.begin < window.text_begin || window.begin >= text_end || window.text_begin < first_seen) {
    if (threadIdx.x == 0) result.count = 0;
    return;
  }
  const int count = min(kTextScores, text_end - window.begin);
  void* const* const pages = a.pages + static_cast<int64_t>(slot) * a.pages_per_sequence;
  const int64_t head_offset = (static_cast<int64_t>(a.layer) * a.kv_heads + a.kv_head) * 2 * kPagePositions;
  const bool has_elements = part * 8 < a.head_dim;
  float query[1][8];
  EightFloats eight = {};
  if (has_elements) LoadEight(a.queries + static_cast<int64_t>(slot) * a.head_dim + part * 8, &eight);
#pragma unroll
  for (int e = 0; e < 8; ++e) query[0][e] = ElementOf(eight, e);
  const float scale = 1.0F / sqrtf(static_cast<float>(a.head_dim));

  ScoreSum text = ScoreSum::Empty(), other = ScoreSum::Empty();
  const int begin = first_seen / kStep * kStep;
#pragma unroll 1
  for (int first = begin; first <= position; first += kStep) {
    const auto position_of = [&](int turn) { return first + turn * kTurn + warp * kTogether + lane / kLanes; };
    const auto seen = [&](int turn) { return position_of(turn) >= first_seen && position_of(turn) <= position; };
    const auto is_text = [&](int turn) {
      return position_of(turn) >= window.text_begin && position_of(turn) < text_end;
    };
    // All addresses come first, so that no key waits for another's page.
    const T* from[kTurns];
#pragma unroll
    for (int t = 0; t < kTurns; ++t) {
      const int p = min(position_of(t), position);
      const auto* const page = static_cast<const T*>(pages[p / kPagePositions]);
      from[t] = page + (head_offset + p % kPagePositions) * a.head_dim + part * 8;
    }
    Eight<T> keys[kTurns];
#pragma unroll
    for (int t = 0; t < kTurns; ++t) {
      keys[t] = {};
      if (seen(t) && has_elements) LoadEight(from[t], &keys[t]);
    }
    float scores[1][kTurns];
    SoftmaxPart<1> unused;
    unused.Clear();
    ScorePositions<kLanes>(query, keys, scale, seen, scores, &unused);
    text.Add(scores[0], [&](int t) { return seen(t) && is_text(t); });
    other.Add(scores[0], [&](int t) { return seen(t) && !is_text(t); });
#pragma unroll
    for (int t = 0; t < kTurns; ++t) {
      const int n = position_of(t) - window.begin;
      if (part == 0 && n >= 0 && n < count) window_scores[n] = scores[0][t];
    }
  }
  text.AddLanes(kLanes);
  other.AddLanes(kLanes);
  if (lane == 0) {
    text_sums[warp] = text;
    other_sums[warp] = other;
  }
  __syncthreads();
  if (warp != 0) return;
  text = text_sums[lane % kWarps];
  other = other_sums[lane % kWarps];
  if (lane >= kWarps) text = other = ScoreSum::Empty();
  text.AddLanes(1);
  other.AddLanes(1);
  if (lane < count) result.scores[lane] = window_scores[lane];
  if (lane > 0) return;
  const float largest = fmaxf(text.most, other.most);
  const float text_sum = text.sum * ScoreSum::Factor(text.most, largest);
  result.count = count;
  result.log_sum = text.most + logf(text.sum);
  result.mass = text_sum / (text_sum + other.sum * ScoreSum::Factor(other.most, largest));
}

template <typename T>
void Score(const Launcher& launch, int rows, const ScoreArguments& a) {
  const dim3 grid(static_cast<unsigned>(rows));
  if (a.head_dim <= 16) return launch(ScoreKernel<T, 2>, grid, kThreads, 0, a);
  if (a.head_dim <= 64) return launch(ScoreKernel<T, 8>, grid, kThreads, 0, a);
  if (a.head_dim <= 128) return launch(ScoreKernel<T, 16>, grid, kThreads, 0, a);
  launch(ScoreKernel<T, 32>, grid, kThreads, 0, a);
}

}  // namespace

void KeepQueries(const Launcher& launch, const TransformerConfig& config, const AttentionLayer& layer,
                 const AlignedQueries& aligned, const SequenceRows& rows, const float* qkv) {
  const KeepArguments a = {rows.slots,
                           rows.positions,
                           config.q_width() + 2 * config.kv_width(),
                           aligned.head,
                           config.head_dim,
                           layer.q_norm,
                           layer.inverse_frequencies,
                           config.rms_norm_eps,
                           qkv,
                           aligned.queries};
  launch(KeepQueryKernel, dim3(static_cast<unsigned>(rows.rows)), 32, 0, a);
}

void ScoreText(const Launcher& launch, Precision precision, const TransformerConfig& config,
               const AlignedQueries& aligned, const FrameRows& frame, const KeyValuePages& pages, const FrameRing& ring,
               int rows, FrameRowResult* results) {
  const ScoreArguments a = {frame,
                            ring,
                            pages.table,
                            pages.pages_per_sequence,
                            aligned.layer,
                            config.num_kv_heads,
                            aligned.head / (config.num_heads / config.num_kv_heads),
                            config.head_dim,
                            config.sliding_window,
                            aligned.queries,
                            results};
  if (precision == Precision::kF32) {
    Score<float>(launch, rows, a);
  } else {
    Score<__nv_bfloat16>(launch, rows, a);
  }
}

}  // namespace qtts::cuda
