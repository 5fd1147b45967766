// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_ATTENTION_ATTEND_BLOCK_CUH_
#define QTTS_CUDA_ATTENTION_ATTEND_BLOCK_CUH_

#include "attention/attention.h"
#include "gemm/swizzled.h"
#include "rules/rope.cuh"
#include "rules/softmax.cuh"
#include "rules/splits.h"
#include "runtime/async_copy.cuh"
#include "runtime/device_math.cuh"

// A thread block that attends from one row to one split of its context, for the kernels of this folder. Its additions
// and their order are those of rules/softmax.cuh for eight warps.
namespace qtts::cuda::attention {

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
  int64_t swizzled_rows;  // 0: y is plain rows
  int splits;
  float* partial;
  unsigned* tickets;
  const int* live;

  __device__ int Sequence(int row) const {
    const int index = per_sequence == 1 ? row : row / per_sequence;
    return slots == nullptr ? index : LoadL2(slots + index);
  }
  __device__ int Position(int row) const {
    return positions == nullptr ? first_position + RowOfSequence(row) : LoadL2(positions + row);
  }
  __device__ int RowOfSequence(int row) const { return per_sequence == 1 ? 0 : row % per_sequence; }
  __device__ int qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
  // Returns the elements from a page's start to the key of `position` (its value lies page_positions rows on).
  __device__ int64_t KeyOffset(int kv_head, int position) const {
    return ((static_cast<int64_t>(layer) * kv_heads + kv_head) * 2 * page_positions + position % page_positions) *
           head_dim;
  }
};

// Norm (if any) and RoPE of one head, by one warp, 2 * kPairs elements a lane. All but the head itself can
// be fetched before it is there.
template <int kPairs = kMaxHeadDim / 64>
class HeadPlacer {
 public:
  __device__ HeadPlacer(const float* norm, const float* inverse_frequencies, int head_dim, int position, int lane)
      : normed_(norm != nullptr), half_(head_dim / 2), lane_(lane) {
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int i = lane + 32 * j;
      if (i >= half_) continue;
      LoadNorm(norm, j, i);
      sincosf(static_cast<float>(position) * inverse_frequencies[i], &sine_[j], &cosine_[j]);
    }
  }

  // Takes the norm of another head of the same position.
  __device__ void SetNorm(const float* norm) {
    normed_ = norm != nullptr;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int i = lane_ + 32 * j;
      if (i < half_) LoadNorm(norm, j, i);
    }
  }

  // This lane's elements of a head.
  struct Parts {
    float low[kPairs], high[kPairs];
  };
  __device__ Parts Load(const float* x) const {
    Parts parts;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int i = lane_ + 32 * j;
      parts.low[j] = i < half_ ? LoadL2(x + i) : 0;
      parts.high[j] = i < half_ ? LoadL2(x + half_ + i) : 0;
    }
    return parts;
  }

  // Does Place() in steps, between which a warp finds the norms' factors of several heads at once.
  __device__ bool normed() const { return normed_; }
  __device__ float Squares(const Parts& parts) const { return HeadSquares(parts.low, parts.high); }
  template <typename Store>
  __device__ void Rotate(const Parts& parts, float factor, const Store& store) const {
    RotateHead(parts.low, parts.high, factor, low_norm_, high_norm_, sine_, cosine_, half_, lane_, store);
  }

  template <typename Store>
  __device__ void Place(const float* x, float eps, const Store& store) const {
    const Parts parts = Load(x);
    NormAndRotate(parts.low, parts.high, normed_, low_norm_, high_norm_, eps, sine_, cosine_, half_, lane_, store);
  }

 private:
  __device__ void LoadNorm(const float* norm, int j, int i) {
    low_norm_[j] = normed_ ? norm[i] : 1;
    high_norm_[j] = normed_ ? norm[half_ + i] : 1;
  }

  bool normed_;
  int half_, lane_;
  float low_norm_[kPairs], high_norm_[kPairs], sine_[kPairs], cosine_[kPairs];
};

// Loads eight elements of a query, or zeros unless `there`.
__device__ __forceinline__ void LoadQuery(const float* q, bool there, float (*query)[8]) {
  float4 v[2] = {};
  if (there) {
    v[0] = reinterpret_cast<const float4*>(q)[0];
    v[1] = reinterpret_cast<const float4*>(q)[1];
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    (*query)[4 * i] = v[i].x;
    (*query)[4 * i + 1] = v[i].y;
    (*query)[4 * i + 2] = v[i].z;
    (*query)[4 * i + 3] = v[i].w;
  }
}

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
  alignas(16) int warp_exponent[kGroup][kWarps];
  alignas(16) float warp_sum[kGroup][kWarps];
  bool last;
};

// A thread's part of a block, which attends from one row with kGroup query heads that share a key head to one split of
// the context. kLanes lanes hold a key, eight elements each.
template <typename T, int kLanes, int kGroup>
class AttendBlock {
  static constexpr int kTogether = 32 / kLanes;  // positions of a warp at once
  static constexpr int kPositionsAtOnce = kWarps * kTogether;
  static constexpr int kTurns = (kSplitPositions + kPositionsAtOnce - 1) / kPositionsAtOnce;

 public:
  using Memory = AttendMemory<T, kLanes, kGroup>;

  // Takes the split_index-th split that the row sees, and kGroup heads from `first_head` on.
  __device__ __forceinline__ AttendBlock(const AttendArguments& arguments, Memory* memory, int row, int first_head,
                                         int split_index)
      : a(arguments),
        m(*memory),
        row_(row),
        first_head_(first_head),
        sequence_(a.Sequence(row_)),
        position_(a.Position(row_)) {
    new_rows_ = a.appended ? 0 : a.RowOfSequence(row_) + 1;
    cached_ = position_ + 1 - new_rows_;
    used_splits_ = UsedSplits(a, position_);
    GoTo(split_index);
  }

  __device__ __forceinline__ void GoTo(int split_index) {
    split_index_ = split_index;
    split_ = FirstSplit(a, position_) + split_index_;
    SetBounds();
    if (idle()) return;
    const int page = split_ * kSplitPositions / a.page_positions;
    row_of_page_ = split_ * kSplitPositions - page * a.page_positions;
    pages_ = a.pages + static_cast<int64_t>(sequence_) * a.pages_per_sequence + page;
    page_ = static_cast<T*>(pages_[0]);
    FindFollowingPage();
  }
  // Goes to the next split; there is one.
  __device__ __forceinline__ void GoToNext() {
    ++split_index_;
    ++split_;
    SetBounds();
    row_of_page_ += kSplitPositions;
    if (row_of_page_ >= a.page_positions) {
      row_of_page_ = 0;
      ++pages_;
      page_ = following_page_;
      FindFollowingPage();
    }
  }
  // Returns the factor of the scores before the softmax.
  __device__ __forceinline__ float Scale() const { return 1.0F / sqrtf(static_cast<float>(a.head_dim)); }
  __device__ __forceinline__ int used_splits() const { return used_splits_; }
  __device__ __forceinline__ int elements() const { return kGroup * a.head_dim; }

  __device__ __forceinline__ bool absent() const { return sequence_ < 0 || position_ < 0; }
  __device__ __forceinline__ bool idle() const { return sequence_ < 0 || position_ < 0 || begin_ >= end_; }

  // Returns norm and angles of the head that this warp places: a query, or the key of a new row.
  __device__ __forceinline__ HeadPlacer<> Placer() const {
    const bool is_key = warp_ >= kGroup;
    const int position = is_key ? position_ - (new_rows_ - 1 - (warp_ - kGroup)) : position_;
    const int head_dim = warp_ < kGroup + new_rows_ ? a.head_dim : 0;  // other warps place no head
    return HeadPlacer<>(is_key ? a.k_norm : a.q_norm, a.inverse_frequencies, head_dim, max(0, position), lane_);
  }

  // Loads the keys and values that lie in the cache.
  __device__ __forceinline__ void LoadCached() {
    const T* const key = RowOfPage(page_, row_of_page_ + warp_ * kTogether + lane_ / kLanes) + part_ * 8;
    const int values_on = a.page_positions * a.head_dim;
    const int turn_on = kPositionsAtOnce * a.head_dim;
    const int first = split_ * kSplitPositions;
    if (kTurns * kPositionsAtOnce == kSplitPositions && begin_ == first && first + kSplitPositions <= cached_ &&
        a.head_dim == kLanes * 8) {
#pragma unroll
      for (int t = 0; t < kTurns; ++t) {
        LoadEight(key + t * turn_on, &keys_[t]);
        LoadEight(key + t * turn_on + values_on, &values_[t]);
      }
      return;
    }
#pragma unroll
    for (int t = 0; t < kTurns; ++t) {
      keys_[t] = {};
      values_[t] = {};
      if (IsSeen(t) && PositionOf(t) < cached_ && HasElements()) {
        LoadEight(key + t * turn_on, &keys_[t]);
        LoadEight(key + t * turn_on + values_on, &values_[t]);
      }
    }
  }

  // Drops them, so that no registers are kept for them.
  __device__ __forceinline__ void Drop() {
#pragma unroll
    for (int t = 0; t < kTurns; ++t) {
      keys_[t] = {};
      values_[t] = {};
    }
  }

  // Returns the page of the split_index-th split that the row sees.
  __device__ __forceinline__ T* PageOf(int split_index) const {
    const int split = FirstSplit(a, position_) + split_index;
    return static_cast<T*>(
        a.pages[static_cast<int64_t>(sequence_) * a.pages_per_sequence + split * kSplitPositions / a.page_positions]);
  }
  // Returns the page of the row's own key, if that lies in the current split.
  __device__ __forceinline__ T* OwnPage() const { return split_ == position_ / kSplitPositions ? page_ : nullptr; }

  // Writes queries, keys and values of the new rows up to this one to shared memory, and the row's own key and value to
  // `own_page`, if there is one and the block's heads are the first of their key head.
  __device__ __forceinline__ void PlaceHeads(const HeadPlacer<>& placer, T* own_page) {
    const float* const x = a.qkv + static_cast<int64_t>(row_) * a.qkv_width();
    const int q_width = a.heads * a.head_dim;
    const int kv_width = a.kv_heads * a.head_dim;
    const bool owner = first_head_ % heads_per_kv_ == 0 && own_page != nullptr;
    if (warp_ < kGroup) {
      placer.Place(x + (first_head_ + warp_) * a.head_dim, a.eps, [&](int i, float value) { m.q[warp_][i] = value; });
    } else if (warp_ < kGroup + new_rows_) {
      const int j = warp_ - kGroup;
      const int back = new_rows_ - 1 - j;
      const float* const source = x - static_cast<int64_t>(back) * a.qkv_width() + q_width + kv_head_ * a.head_dim;
      T* const target = owner && back == 0 ? own_page + a.KeyOffset(kv_head_, position_) : nullptr;
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
          owner && back == 0 ? own_page + a.KeyOffset(kv_head_, position_) + a.page_positions * a.head_dim : nullptr;
      for (int i = lane_; i < a.head_dim; i += 32) {
        const T rounded = FromFloat<T>(LoadL2(source + i));
        m.new_values[j][i] = rounded;
        if (target != nullptr) target[i] = rounded;
      }
    }
  }

  // Writes the results of this warp's positions to shared memory.
  __device__ __forceinline__ void Attend(float scale) {
    const auto seen = [&](int turn) { return IsSeen(turn); };
    float scores[kGroup][kTurns];
    SoftmaxPart<kGroup> sums;
    sums.Clear();
    Score(scale, scores, &sums);
    WeighValues<T>(scores, values_, seen, &sums);
    JoinLanes<kLanes>(&sums);
    if (lane_ >= kLanes) return;
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
#pragma unroll
      for (int e = 0; e < 8; ++e) m.warp_y[warp_][g][part_ * 8 + e] = sums.y[g][e];
      if (part_ == 0) {
        m.warp_exponent[g][warp_] = sums.exponent[g];
        m.warp_sum[g][warp_] = sums.sum[g];
      }
    }
  }

  __device__ __forceinline__ void Store(int i, float value) const {
    const int column = first_head_ * a.head_dim + i;
    if (a.swizzled_rows != 0) {
      *reinterpret_cast<T*>(static_cast<char*>(a.y) + gemm::ElementOffset(a.swizzled_rows, row_, column)) =
          FromFloat<T>(value);
      return;
    }
    static_cast<T*>(a.y)[static_cast<int64_t>(row_) * a.y_stride + column] = FromFloat<T>(value);
  }

  // Returns element d of head g, combined of the warps.
  __device__ __forceinline__ MergedWarps<1> Merged(int g, int d) const {
    int exponents[kWarps];
    float sums[kWarps], y[kWarps][1];
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      exponents[w] = m.warp_exponent[g][w];
      sums[w] = m.warp_sum[g][w];
      y[w][0] = m.warp_y[w][g][d];
    }
    return MergeWarpParts(exponents, sums, y);
  }

  // Combines the warps: to y, or, if the row has several splits, to this split's record.
  __device__ __forceinline__ void MergeWarps() {
    for (int i = threadIdx.x; i < elements(); i += kThreads) {
      const int g = i / a.head_dim;
      const int d = i % a.head_dim;
      const MergedWarps<1> merged = Merged(g, d);
      if (used_splits_ == 1) {
        Store(i, merged.value[0] / merged.total);
        continue;
      }
      float* const mine = Record(split_index_);
      mine[2 * kGroup + i] = merged.value[0];
      if (d == 0) {
        mine[g] = merged.total;
        mine[kGroup + g] = __int_as_float(merged.exponent);
      }
    }
  }

  // Combines, in the last thread block, the splits in order.
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
      SplitSums sums;
#pragma unroll 4
      for (int s = 0; s < used_splits_; ++s) {
        const float* const other = Record(s);
        sums.Add(__float_as_int(LoadL2(other + kGroup + g)), LoadL2(other + g), LoadL2(other + 2 * kGroup + i));
      }
      Store(i, sums.value / sums.total);
    }
  }

 private:
  // Sets the positions of the current split that are seen.
  __device__ __forceinline__ void SetBounds() {
    begin_ = max(FirstSeen(a, position_), split_ * kSplitPositions);
    end_ = min(position_ + 1, (split_ + 1) * kSplitPositions);
  }
  __device__ __forceinline__ void FindFollowingPage() {
    const int first = split_ * kSplitPositions - row_of_page_ + a.page_positions;
    following_page_ = first <= position_ ? static_cast<T*>(pages_[1]) : nullptr;
  }
  // Returns the keys of a page's row, of this block's key head.
  __device__ __forceinline__ const T* RowOfPage(const T* page, int row) const {
    return page + a.KeyOffset(kv_head_, 0) + row * a.head_dim;
  }
  __device__ __forceinline__ int PositionOf(int turn) const {
    return split_ * kSplitPositions + turn * kPositionsAtOnce + warp_ * kTogether + lane_ / kLanes;
  }
  __device__ __forceinline__ bool IsSeen(int turn) const {
    return PositionOf(turn) >= begin_ && PositionOf(turn) < end_;
  }
  // Computes the scores of this lane's positions. New rows' keys and values come from shared memory.
  __device__ __forceinline__ void Score(float scale, float (&scores)[kGroup][kTurns], SoftmaxPart<kGroup>* sums) {
    if (end_ > cached_) {
#pragma unroll
      for (int t = 0; t < kTurns; ++t) {
        const int p = PositionOf(t);
        if (IsSeen(t) && p >= cached_ && HasElements()) {
          keys_[t] = *reinterpret_cast<const Eight<T>*>(&m.new_keys[p - cached_][part_ * 8]);
          values_[t] = *reinterpret_cast<const Eight<T>*>(&m.new_values[p - cached_][part_ * 8]);
        }
      }
    }
    float query[kGroup][8];
#pragma unroll
    for (int g = 0; g < kGroup; ++g) LoadQuery(&m.q[g][part_ * 8], HasElements(), &query[g]);
    ScorePositions<kLanes>(
        query, keys_, scale, [&](int turn) { return IsSeen(turn); }, scores, sums);
  }
  // Returns whether this lane's eight elements lie within the head.
  __device__ __forceinline__ bool HasElements() const { return part_ * 8 < a.head_dim; }
  // Returns the record of a split: sums, exponents (as the bits of a float), then values.
  __device__ __forceinline__ float* Record(int split) const {
    const int record = elements() + 2 * kGroup;
    return a.partial + (static_cast<int64_t>(row_) * groups_ + first_head_ / kGroup) * a.splits * record +
           split * record;
  }
  const AttendArguments& a;
  Memory& m;
  const int warp_ = threadIdx.x / 32;
  const int lane_ = threadIdx.x % 32;
  const int part_ = lane_ % kLanes;
  const int row_;
  const int first_head_;
  const int groups_ = a.heads / kGroup;
  const int heads_per_kv_ = a.heads / a.kv_heads;
  const int kv_head_ = first_head_ / heads_per_kv_;
  int sequence_, position_, new_rows_, cached_, split_index_, split_, used_splits_, begin_, end_;
  int row_of_page_ = 0;  // the split's first row of its page: splits don't cross pages
  void* const* pages_ = nullptr;
  T* page_ = nullptr;
  T* following_page_ = nullptr;
  Eight<T> keys_[kTurns], values_[kTurns];
};

}  // namespace qtts::cuda::attention

#endif  // QTTS_CUDA_ATTENTION_ATTEND_BLOCK_CUH_
