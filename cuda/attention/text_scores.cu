// SPDX-License-Identifier: LGPL-2.1-or-later
#include "attention/attend_block.cuh"
#include "attention/text_scores.h"
#include "rules/score_power.h"
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

constexpr int kWarps = 16;
constexpr int kThreads = 32 * kWarps;
constexpr int kTurns = 8;  // positions whose keys a group of lanes loads at once
// Positions whose scores lie in shared memory. Longer contexts go through it chunk by chunk.
constexpr int kChunk = 2048;
constexpr int kThreadScores = kChunk / kThreads;

// Sum of exp(score), relative to 2^exponent (rules/score_power.h).
struct ScoreSum {
  int exponent = kNoExponent;
  float sum = 0;

  __device__ __forceinline__ void Add(const ScoreSum& other) {
    const JoinFactors factors = FactorsToJoin(exponent, other.exponent);
    exponent = factors.exponent;
    sum = JoinedSum(sum, factors.own, other.sum, factors.other);
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

// Sums of kTurns values over the kLanes lanes of a group, added as ScorePositions() (rules/softmax.cuh) adds them. Two
// lanes that exchange values halve the sums between them, down to one, so a lane ends with some of the sums: kOfLane of
// them, those of the turns from first_turn() on. kCopies neighbours have the same.
template <int kLanes>
struct LaneSums {
  static constexpr int kOfLane = kLanes >= kTurns ? 1 : kTurns / kLanes;
  static constexpr int kCopies = kLanes >= kTurns ? kLanes / kTurns : 1;

  __device__ __forceinline__ static int first_turn(int lane) { return lane % kLanes / kCopies * kOfLane; }
  __device__ __forceinline__ static void Add(int lane, float (&values)[kTurns]) {
    int count = kTurns;
#pragma unroll
    for (int offset = kLanes / 2; offset > 0; offset /= 2) {
      const bool upper = (lane & offset) != 0;
      const int half = count / 2;
#pragma unroll
      for (int i = 0; i < kTurns / 2; ++i) {
        if (i >= max(half, 1)) continue;
        const float low = values[i];
        const float high = half > 0 ? values[i + half] : low;
        values[i] = (upper ? high : low) + __shfl_xor_sync(~0U, upper ? low : high, offset);
      }
      count = max(half, 1);
    }
  }
};

// The largest of the block's exponents, and the sum of its values; every thread has the result. The order of additions
// is that of the threads' numbers alone.
__device__ __forceinline__ int BlockMax(int exponent, int (&of_warps)[kWarps]) {
  exponent = __reduce_max_sync(~0U, exponent);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = exponent;
  __syncthreads();
  return __reduce_max_sync(~0U, of_warps[threadIdx.x % kWarps]);
}
__device__ __forceinline__ float BlockSum(float value, float (&of_warps)[kWarps]) {
  value = WarpSum(value);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  return WarpSum(threadIdx.x % 32 < kWarps ? of_warps[threadIdx.x % 32] : 0);
}

// A row's keys of the alignment head, and its query.
template <typename T, int kLanes>
class RowScores {
  static constexpr int kTogether = 32 / kLanes;
  static constexpr int kPositionsAtOnce = kWarps * kTogether;

 public:
  __device__ __forceinline__ RowScores(const ScoreArguments& a, int slot, int position)
      : position_(position),
        head_dim_(a.head_dim),
        has_elements_(part_ * 8 < a.head_dim),
        pages_(a.pages + static_cast<int64_t>(slot) * a.pages_per_sequence),
        offset_((static_cast<int64_t>(a.layer) * a.kv_heads + a.kv_head) * 2 * kPagePositions * a.head_dim + part_ * 8),
        scale_(1.0F / sqrtf(static_cast<float>(a.head_dim))) {
    EightFloats eight = {};
    if (has_elements_) LoadEight(a.queries + static_cast<int64_t>(slot) * a.head_dim + part_ * 8, &eight);
#pragma unroll
    for (int e = 0; e < 8; ++e) query_[e] = ElementOf(eight, e);
  }

  // Scores of the positions from `first` to the row's own, of up to a chunk: to `scores`.
  __device__ __forceinline__ void Score(int first, float (&scores)[kChunk]) const {
    const int end = min(position_ + 1, first + kChunk);
#pragma unroll 1
    for (int step = first; step < end; step += kTurns * kPositionsAtOnce) {
      const int mine = step + warp_ * kTogether + lane_ / kLanes;
      // All addresses come first, so that no key waits for another's page.
      const T* from[kTurns];
#pragma unroll
      for (int t = 0; t < kTurns; ++t) {
        const int p = min(mine + t * kPositionsAtOnce, position_);
        from[t] = static_cast<const T*>(pages_[p / kPagePositions]) + offset_ + p % kPagePositions * head_dim_;
      }
      Eight<T> keys[kTurns];
#pragma unroll
      for (int t = 0; t < kTurns; ++t) {
        keys[t] = {};
        if (mine + t * kPositionsAtOnce < end && has_elements_) LoadEight(from[t], &keys[t]);
      }
      float products[kTurns];
#pragma unroll
      for (int t = 0; t < kTurns; ++t) {
        products[t] = 0;
#pragma unroll
        for (int e = 0; e < 8; ++e) products[t] += query_[e] * ElementOf(keys[t], e);
      }
      using Sums = LaneSums<kLanes>;
      Sums::Add(lane_, products);
#pragma unroll
      for (int i = 0; i < Sums::kOfLane; ++i) {
        const int p = mine + (Sums::first_turn(lane_) + i) * kPositionsAtOnce;
        if (lane_ % Sums::kCopies == 0 && p < end) scores[p - first] = products[i] * scale_;
      }
    }
  }

 private:
  const int warp_ = static_cast<int>(threadIdx.x) / 32;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
  const int part_ = lane_ % kLanes;
  const int position_, head_dim_;
  const bool has_elements_;
  void* const* const pages_;
  const int64_t offset_;
  const float scale_;
  float query_[8];
};

template <typename T, int kLanes>
__global__ void __launch_bounds__(kThreads, 1) ScoreKernel(ScoreArguments a) {
  __shared__ float scores[kChunk];
  __shared__ int exponents[2][kWarps];
  __shared__ float sums[2][kWarps];
  const int row = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x);
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
    if (thread == 0) result.count = 0;
    return;
  }
  const int count = min(kTextScores, text_end - window.begin);
  const RowScores<T, kLanes> row_scores(a, slot, position);
  ScoreSum text, other;
#pragma unroll 1
  for (int first = first_seen / kChunk * kChunk; first <= position; first += kChunk) {
    row_scores.Score(first, scores);
    __syncthreads();
    const auto position_of = [&](int i) { return first + i * kThreads + thread; };
    const auto seen = [&](int i) { return position_of(i) >= first_seen && position_of(i) <= position; };
    const auto is_text = [&](int i) { return position_of(i) >= window.text_begin && position_of(i) < text_end; };
    float mine[kThreadScores];
    ScoreSum chunk_text, chunk_other;
#pragma unroll
    for (int i = 0; i < kThreadScores; ++i) {
      if (!seen(i)) continue;
      mine[i] = scores[i * kThreads + thread];
      int& exponent = is_text(i) ? chunk_text.exponent : chunk_other.exponent;
      exponent = max(exponent, ExponentOf(mine[i]));
      const int n = position_of(i) - window.begin;
      if (n >= 0 && n < count) result.scores[n] = mine[i];
    }
    chunk_text.exponent = BlockMax(chunk_text.exponent, exponents[0]);
    chunk_other.exponent = BlockMax(chunk_other.exponent, exponents[1]);
#pragma unroll
    for (int i = 0; i < kThreadScores; ++i) {
      if (!seen(i)) continue;
      const bool in_text = is_text(i);
      const float weight = WeightOf<true>(mine[i], in_text ? chunk_text.exponent : chunk_other.exponent);
      (in_text ? chunk_text.sum : chunk_other.sum) += weight;
    }
    chunk_text.sum = BlockSum(chunk_text.sum, sums[0]);
    chunk_other.sum = BlockSum(chunk_other.sum, sums[1]);
    text.Add(chunk_text);
    other.Add(chunk_other);
  }
  if (thread != 0) return;
  result.count = count;
  constexpr float kLogOfTwo = 0.693147181F;
  result.log_sum = fmaf(static_cast<float>(text.exponent), kLogOfTwo, logf(text.sum));
  const JoinFactors factors = FactorsToJoin(text.exponent, other.exponent);
  const float mass = text.sum * factors.own;
  result.mass = mass / (mass + other.sum * factors.other);
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
