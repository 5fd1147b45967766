// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>

#include "attention/attention.h"
#include "rules/rope.cuh"
#include "rules/softmax.cuh"
#include "rules/splits.h"
#include "runtime/device_math.cuh"

namespace qtts::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kMaxNewRows = 2;

struct AttendArguments {
  const int* slots;
  const int* positions;
  int first_position, per_sequence;
  bool appended;
  void* const* pages;
  int pages_per_sequence, page_positions;
  int layer, heads, kv_heads, head_dim, window;
  const float* q_norm;
  const float* k_norm;
  const float* inverse_frequencies;
  float eps;
  const float* qkv;
  void* y;
  int y_stride;
  int splits;
  float* partial;
  unsigned* tickets;
  const int* live;

  __device__ int Sequence(int row) const {
    const int index = row / per_sequence;
    return slots == nullptr ? index : Fresh(slots + index);
  }
  __device__ int Position(int row) const {
    return positions == nullptr ? first_position + row % per_sequence : Fresh(positions + row);
  }
  __device__ int qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
  // Elements from a page's start to the key of `position` (its value lies page_positions rows on).
  __device__ int64_t KeyOffset(int kv_head, int position) const {
    return ((static_cast<int64_t>(layer) * kv_heads + kv_head) * 2 * page_positions + position % page_positions) *
           head_dim;
  }
};

// Norm (if any) and RoPE of one head, by one warp, 2 * kPairs elements a lane. All but the head itself can
// be fetched before it is there.
class HeadPlacer {
 public:
  __device__ HeadPlacer(const float* norm, const float* inverse_frequencies, int head_dim, int position, int lane)
      : normed_(norm != nullptr), half_(head_dim / 2), lane_(lane) {
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int i = lane + 32 * j;
      if (i >= half_) continue;
      low_norm_[j] = normed_ ? norm[i] : 1;
      high_norm_[j] = normed_ ? norm[half_ + i] : 1;
      sincosf(static_cast<float>(position) * inverse_frequencies[i], &sine_[j], &cosine_[j]);
    }
  }

  template <typename Store>
  __device__ void Place(const float* x, float eps, const Store& store) const {
    float low[kPairs], high[kPairs];
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int i = lane_ + 32 * j;
      low[j] = i < half_ ? Fresh(x + i) : 0;
      high[j] = i < half_ ? Fresh(x + half_ + i) : 0;
    }
    NormAndRotate(low, high, normed_, low_norm_, high_norm_, eps, sine_, cosine_, half_, lane_, store);
  }

 private:
  static constexpr int kPairs = kMaxHeadDim / 64;
  bool normed_;
  int half_, lane_;
  float low_norm_[kPairs], high_norm_[kPairs], sine_[kPairs], cosine_[kPairs];
};

// Minimum thread blocks per SM, by register use: those of a prompt must run at once.
template <typename T, int kLanes, int kGroup>
constexpr int kBlocksTogether = sizeof(T) == 2 && kLanes <= 16 && kGroup <= 2 ? 3 : 2;

template <typename T, int kLanes, int kGroup>
struct AttendMemory {
  static constexpr int kWidth = kLanes * 8;
  alignas(16) float q[kGroup][kWidth];
  alignas(16) T new_keys[kMaxNewRows][kWidth];
  alignas(16) T new_values[kMaxNewRows][kWidth];
  alignas(16) float warp_y[kWarps][kGroup][kWidth];
  float warp_max[kWarps][kGroup];
  float warp_sum[kWarps][kGroup];
  bool last;
};

// A thread's part of a block, which attends from one row with kGroup query heads that share a key head to one split of
// the context. kLanes lanes hold a key, eight elements each.
template <typename T, int kLanes, int kGroup>
class AttendBlock {
 public:
  using Memory = AttendMemory<T, kLanes, kGroup>;

  __device__ __forceinline__ AttendBlock(const AttendArguments& arguments, Memory* memory)
      : a(arguments), m(*memory), sequence_(a.Sequence(row_)), position_(a.Position(row_)) {
    new_rows_ = a.appended ? 0 : row_ % a.per_sequence + 1;
    cached_ = position_ + 1 - new_rows_;
    split_ = FirstSplit(a, position_) + split_index_;
    used_splits_ = UsedSplits(a, position_);
    begin_ = max(FirstSeen(a, position_), split_ * kSplitPositions);
    end_ = min(position_ + 1, (split_ + 1) * kSplitPositions);
    if (!idle()) {
      page_ = static_cast<T*>(a.pages[static_cast<int64_t>(sequence_) * a.pages_per_sequence +
                                      split_ * kSplitPositions / a.page_positions]);
    }
#pragma unroll
    for (int t = 0; t < kTurns; ++t) {
      keys_[t] = {};
      values_[t] = {};
    }
  }

  __device__ __forceinline__ bool idle() const { return sequence_ < 0 || position_ < 0 || begin_ >= end_; }

  // Norm and angles of the head that this warp places: a query, or the key of a new row.
  __device__ __forceinline__ HeadPlacer Placer() const {
    const bool is_key = warp_ >= kGroup;
    const int position = is_key ? position_ - (new_rows_ - 1 - (warp_ - kGroup)) : position_;
    return HeadPlacer(is_key ? a.k_norm : a.q_norm, a.inverse_frequencies, a.head_dim, max(0, position), lane_);
  }

  // Keys and values that lie in the cache.
  __device__ __forceinline__ void LoadCached() {
#pragma unroll
    for (int t = 0; t < kTurns; ++t) {
      const int p = PositionOf(t);
      if (IsSeen(t) && p < cached_ && HasElements()) {
        const T* const key = page_ + a.KeyOffset(kv_head_, p) + part_ * 8;
        LoadEight(key, &keys_[t]);
        LoadEight(key + a.page_positions * a.head_dim, &values_[t]);
      }
    }
  }

  // Queries, keys and values of the new rows up to this one, to shared memory; the row's own key and value to the
  // cache.
  __device__ __forceinline__ void PlaceHeads(const HeadPlacer& placer) {
    const float* const x = a.qkv + static_cast<int64_t>(row_) * a.qkv_width();
    const int q_width = a.heads * a.head_dim;
    const int kv_width = a.kv_heads * a.head_dim;
    const bool owner = first_head_ % heads_per_kv_ == 0 && split_ == position_ / kSplitPositions;
    if (warp_ < kGroup) {
      placer.Place(x + (first_head_ + warp_) * a.head_dim, a.eps, [&](int i, float value) { m.q[warp_][i] = value; });
    } else if (warp_ < kGroup + new_rows_) {
      const int j = warp_ - kGroup;
      const int back = new_rows_ - 1 - j;
      const float* const source = x - static_cast<int64_t>(back) * a.qkv_width() + q_width + kv_head_ * a.head_dim;
      T* const target = owner && back == 0 ? page_ + a.KeyOffset(kv_head_, position_) : nullptr;
      placer.Place(source, a.eps, [&](int i, float value) {
        const T rounded = FromFloat<T>(value);
        m.new_keys[j][i] = rounded;
        if (target != nullptr) target[i] = rounded;
      });
    } else if (warp_ < kGroup + 2 * new_rows_) {
      const int j = warp_ - kGroup - new_rows_;
      const int back = new_rows_ - 1 - j;
      const float* const source =
          x - static_cast<int64_t>(back) * a.qkv_width() + q_width + kv_width + kv_head_ * a.head_dim;
      T* const target =
          owner && back == 0 ? page_ + a.KeyOffset(kv_head_, position_) + a.page_positions * a.head_dim : nullptr;
      for (int i = lane_; i < a.head_dim; i += 32) {
        const T rounded = FromFloat<T>(Fresh(source + i));
        m.new_values[j][i] = rounded;
        if (target != nullptr) target[i] = rounded;
      }
    }
  }

  // Writes the results of this warp's positions to shared memory.
  __device__ __forceinline__ void Attend() {
#pragma unroll
    for (int t = 0; t < kTurns; ++t) {
      const int p = PositionOf(t);
      if (IsSeen(t) && p >= cached_ && HasElements()) {
        keys_[t] = *reinterpret_cast<const Eight<T>*>(&m.new_keys[p - cached_][part_ * 8]);
        values_[t] = *reinterpret_cast<const Eight<T>*>(&m.new_values[p - cached_][part_ * 8]);
      }
    }
    float query[kGroup][8];
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
#pragma unroll
      for (int e = 0; e < 8; ++e) query[g][e] = HasElements() ? m.q[g][part_ * 8 + e] : 0;
    }
    const float scale = 1.0F / sqrtf(static_cast<float>(a.head_dim));
    const auto seen = [&](int turn) { return IsSeen(turn); };
    float scores[kGroup][kTurns];
    SoftmaxPart<kGroup> sums;
    sums.Clear();
    ScorePositions<kLanes>(query, keys_, scale, seen, scores, &sums);
    WeighValues<false, T>(scores, values_, seen, &sums);
    JoinLanes<kLanes, T>(&sums);
    if (lane_ >= kLanes) return;
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
#pragma unroll
      for (int e = 0; e < 8; ++e) m.warp_y[warp_][g][part_ * 8 + e] = sums.y[g][e];
      if (part_ == 0) {
        m.warp_max[warp_][g] = sums.most[g];
        m.warp_sum[warp_][g] = sums.sum[g];
      }
    }
  }

  // Combines the warps: to y, or, if the row has several splits, to this split's record.
  __device__ __forceinline__ void MergeWarps() {
    for (int i = threadIdx.x; i < elements(); i += kThreads) {
      const int g = i / a.head_dim;
      const int d = i % a.head_dim;
      float maxima[kWarps], sums[kWarps], y[kWarps][1];
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        maxima[w] = m.warp_max[w][g];
        sums[w] = m.warp_sum[w][g];
        y[w][0] = m.warp_y[w][g][d];
      }
      const MergedWarps<1> merged = MergeWarpParts<T>(maxima, sums, y);
      if (used_splits_ == 1) {
        Store(i, merged.value[0] / merged.total);
        continue;
      }
      float* const mine = Record(split_index_);
      mine[2 * kGroup + i] = merged.value[0];
      if (d == 0) {
        mine[g] = merged.total;
        mine[kGroup + g] = merged.largest;
      }
    }
  }

  // The last thread block combines the splits in order.
  __device__ __forceinline__ void CombineSplits() {
    if (used_splits_ == 1) return;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned* const ticket = a.tickets + static_cast<int64_t>(row_) * groups_ + first_head_ / kGroup;
      m.last = atomicAdd(ticket, 1U) == static_cast<unsigned>(used_splits_ - 1);
      if (m.last) *ticket = 0;
    }
    __syncthreads();
    if (!m.last) return;
    __threadfence();
    for (int i = threadIdx.x; i < elements(); i += kThreads) {
      const int g = i / a.head_dim;
      float largest = -INFINITY;
      for (int s = 0; s < used_splits_; ++s) largest = fmaxf(largest, Fresh(Record(s) + kGroup + g));
      float total = 0, value = 0;
#pragma unroll 4
      for (int s = 0; s < used_splits_; ++s) {
        const float* const other = Record(s);
        AddSplit(SplitFactor<T>(Fresh(other + kGroup + g), largest), Fresh(other + g), Fresh(other + 2 * kGroup + i),
                 &total, &value);
      }
      Store(i, value / total);
    }
  }

 private:
  static constexpr int kTogether = 32 / kLanes;  // positions of a warp at once
  static constexpr int kTurn = kWarps * kTogether;
  static constexpr int kTurns = (kSplitPositions + kTurn - 1) / kTurn;

  __device__ __forceinline__ int PositionOf(int turn) const {
    return split_ * kSplitPositions + turn * kTurn + warp_ * kTogether + lane_ / kLanes;
  }
  __device__ __forceinline__ bool IsSeen(int turn) const {
    return PositionOf(turn) >= begin_ && PositionOf(turn) < end_;
  }
  // Whether this lane's eight elements lie within the head.
  __device__ __forceinline__ bool HasElements() const { return part_ * 8 < a.head_dim; }
  __device__ __forceinline__ int elements() const { return kGroup * a.head_dim; }
  // Sums, maxima, then values.
  __device__ __forceinline__ float* Record(int split) const {
    const int record = elements() + 2 * kGroup;
    return a.partial + (static_cast<int64_t>(row_) * groups_ + first_head_ / kGroup) * a.splits * record +
           split * record;
  }
  __device__ __forceinline__ void Store(int i, float value) const {
    static_cast<T*>(a.y)[static_cast<int64_t>(row_) * a.y_stride + first_head_ * a.head_dim + i] = FromFloat<T>(value);
  }

  const AttendArguments& a;
  Memory& m;
  const int warp_ = threadIdx.x / 32;
  const int lane_ = threadIdx.x % 32;
  const int part_ = lane_ % kLanes;
  const int row_ = blockIdx.y;
  const int groups_ = a.heads / kGroup;
  const int first_head_ = static_cast<int>(blockIdx.x) % groups_ * kGroup;
  const int split_index_ = static_cast<int>(blockIdx.x) / groups_;
  const int heads_per_kv_ = a.heads / a.kv_heads;
  const int kv_head_ = first_head_ / heads_per_kv_;
  int sequence_, position_, new_rows_, cached_, split_, used_splits_, begin_, end_;
  T* page_ = nullptr;
  Eight<T> keys_[kTurns], values_[kTurns];
};

template <typename T, int kLanes, int kGroup>
__global__ void __launch_bounds__(kThreads, kBlocksTogether<T, kLanes, kGroup>) AttendKernel(AttendArguments a) {
  __shared__ AttendMemory<T, kLanes, kGroup> memory;
  AttendBlock<T, kLanes, kGroup> block(a, &memory);
  // Keys and values of earlier frames are complete; those of the previous kernel are not.
  if (!block.idle() && !a.appended) block.LoadCached();
  const bool live = a.live == nullptr || Fresh(a.live) != 0;
  const HeadPlacer placer = block.Placer();

  WaitForPrevious();
  LetNextStart();
  if (block.idle() || !live) return;
  if (a.appended) block.LoadCached();
  block.PlaceHeads(placer);
  __syncthreads();
  block.Attend();
  __syncthreads();
  block.MergeWarps();
  block.CombineSplits();
}

template <typename T>
__global__ void __launch_bounds__(64) AppendKernel(AttendArguments a) {
  const int row = blockIdx.y;
  const int kv_head = blockIdx.x;
  const int lane = threadIdx.x % 32;
  const int sequence = a.Sequence(row);
  const int position = a.Position(row);
  const bool idle = sequence < 0 || position < 0;
  T* key = nullptr;
  if (!idle) {
    key =
        static_cast<T*>(a.pages[static_cast<int64_t>(sequence) * a.pages_per_sequence + position / a.page_positions]) +
        a.KeyOffset(kv_head, position);
  }
  const HeadPlacer placer(a.k_norm, a.inverse_frequencies, a.head_dim, max(0, position), lane);

  WaitForPrevious();
  LetNextStart();
  if (idle) return;

  const float* const x = a.qkv + static_cast<int64_t>(row) * a.qkv_width() + (a.heads + kv_head) * a.head_dim;
  if (threadIdx.x < 32) {
    placer.Place(x, a.eps, [&](int i, float v) { key[i] = FromFloat<T>(v); });
  } else {
    T* const value = key + a.page_positions * a.head_dim;
    for (int i = lane; i < a.head_dim; i += 32) value[i] = FromFloat<T>(Fresh(x + a.kv_heads * a.head_dim + i));
  }
}

AttendArguments Arguments(const TransformerConfig& config, const AttentionLayer& layer, const SequenceRows& rows,
                          const KeyValuePages& pages, const float* qkv) {
  AttendArguments a = {};
  a.slots = rows.slots;
  a.positions = rows.positions;
  a.first_position = rows.first_position;
  a.per_sequence = rows.per_sequence;
  a.appended = rows.appended;
  a.pages = pages.table;
  a.pages_per_sequence = pages.pages_per_sequence;
  a.page_positions = pages.page_positions;
  a.layer = layer.layer;
  a.heads = config.num_heads;
  a.kv_heads = config.num_kv_heads;
  a.head_dim = config.head_dim;
  a.window = config.sliding_window;
  a.q_norm = layer.q_norm;
  a.k_norm = layer.k_norm;
  a.inverse_frequencies = layer.inverse_frequencies;
  a.eps = config.rms_norm_eps;
  a.qkv = qkv;
  return a;
}

// Query heads per thread block. One, as long as there is an SM for each head: that is faster.
int GroupOf(const TransformerConfig& config, int64_t rows, int splits, const AttentionNumbers& numbers) {
  if (rows * splits * config.num_heads <= numbers.blocks_at_once) return 1;
  const int group = config.num_heads / config.num_kv_heads;
  return group % 4 == 0 ? 4 : group % 2 == 0 ? 2 : 1;
}

template <typename T, int kLanes>
void AttendGroup(const Launcher& launch, int group, dim3 grid, const AttendArguments& a) {
  if (group == 1) launch(AttendKernel<T, kLanes, 1>, grid, kThreads, 0, a);
  if (group == 2) launch(AttendKernel<T, kLanes, 2>, grid, kThreads, 0, a);
  if (group == 4) launch(AttendKernel<T, kLanes, 4>, grid, kThreads, 0, a);
}

template <typename T>
void AttendLanes(const Launcher& launch, int group, dim3 grid, const AttendArguments& a) {
  if (a.head_dim <= 16) return AttendGroup<T, 2>(launch, group, grid, a);
  if (a.head_dim <= 64) return AttendGroup<T, 8>(launch, group, grid, a);
  if (a.head_dim <= 128) return AttendGroup<T, 16>(launch, group, grid, a);
  return AttendGroup<T, 32>(launch, group, grid, a);
}

}  // namespace

size_t PartialElements(const TransformerConfig& config, int64_t rows, int splits) {
  return static_cast<size_t>(rows) * static_cast<size_t>(config.num_heads) * static_cast<size_t>(splits) *
         static_cast<size_t>(config.head_dim + 2);
}

size_t TicketElements(const TransformerConfig& config, int64_t rows) {
  return static_cast<size_t>(rows) * static_cast<size_t>(config.num_heads);
}

int SplitsFor(const TransformerConfig& config, int64_t positions) {
  const int64_t all = (positions + kSplitPositions - 1) / kSplitPositions;
  if (config.sliding_window == 0) return static_cast<int>(all);
  return static_cast<int>(std::min<int64_t>(all, (config.sliding_window - 1) / kSplitPositions + 2));
}

void Attend(const Launcher& launch, Precision precision, const TransformerConfig& config, const AttentionLayer& layer,
            const SequenceRows& rows, const KeyValuePages& pages, const AttentionScratch& scratch, int splits,
            const float* qkv, void* y, int y_stride, const int* live) {
  AttendArguments a = Arguments(config, layer, rows, pages, qkv);
  a.y = y;
  a.y_stride = y_stride;
  a.splits = splits;
  a.partial = scratch.partial;
  a.tickets = scratch.tickets;
  a.live = live;
  const int group = GroupOf(config, rows.rows, splits, launch.numbers->attention);
  const dim3 grid(static_cast<unsigned>(config.num_heads / group * splits), static_cast<unsigned>(rows.rows));
  if (precision == Precision::kF32) {
    AttendLanes<float>(launch, group, grid, a);
  } else {
    AttendLanes<__nv_bfloat16>(launch, group, grid, a);
  }
}

void AppendKeyValues(const Launcher& launch, Precision precision, const TransformerConfig& config,
                     const AttentionLayer& layer, const SequenceRows& rows, const KeyValuePages& pages,
                     const float* qkv) {
  const AttendArguments a = Arguments(config, layer, rows, pages, qkv);
  const dim3 grid(static_cast<unsigned>(config.num_kv_heads), static_cast<unsigned>(rows.rows));
  if (precision == Precision::kF32) {
    launch(AppendKernel<float>, grid, 64, 0, a);
  } else {
    launch(AppendKernel<__nv_bfloat16>, grid, 64, 0, a);
  }
}

}  // namespace qtts::cuda
