// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_FRAME_ATTENTION_CUH_
#define QTTS_CUDA_PATHS_PERSISTENT_FRAME_ATTENTION_CUH_

#include <cstdint>

#include "attention/attention.h"
#include "paths/persistent/frame_block.cuh"
#include "paths/persistent/frame_memory.cuh"
#include "paths/persistent/frame_shape.cuh"
#include "paths/persistent/team.cuh"
#include "paths/persistent/words.cuh"
#include "rules/rope.cuh"
#include "rules/score_power.h"
#include "rules/softmax.cuh"
#include "rules/splits.h"
#include "runtime/async_copy.cuh"
#include "runtime/device_math.cuh"

// The persistent kernel's attention, split by split, by the rules of rules/softmax.cuh.
namespace qtts::cuda::persistent {

// Lanes that share a position, and positions that the team attends to at once.
inline constexpr int kLanes = kHeadDim / 8;
inline constexpr int kPositionsAtOnce = kWarps * (32 / kLanes);

// Each thread puts together kQueries elements of what the warps have.
template <int kQueries>
inline constexpr int kMergingThreads = kHeadDim / kQueries;

template <typename Traits>
__device__ __forceinline__ int64_t Block<Traits>::LayerStride(const PersistentStack& s) {
  return static_cast<int64_t>(s.cache_heads) * 2 * s.page_positions * kHeadDim;
}

template <typename Traits>
template <int kRows, bool kTalker>
__device__ __forceinline__ void Block<Traits>::Attend(const PersistentStack& s, const PersistentLayer& layer,
                                                      int layer_index) {
  constexpr int kParts = kRows > kStreams ? kRows / kStreams : 1;
  const uint32_t qkv_epoch = epoch_;
  epoch_ += 2;
#pragma unroll 1
  for (int i = 0; i < kParts * Parts(); ++i) {
    const AttentionPart& part = shared_->parts[kFolded ? i / kParts : 0][i % kParts];
    if (part.silent) PublishSilence(s, part.row, part.head);
    const int splits = Uniform(part.splits);
    if (splits == 0) continue;
    if constexpr (!kTalker) {
      static_assert(kPersistentGroups <= kPositionsAtOnce);
      AttendSplits<1, 1>(s, layer, layer_index, part, splits, qkv_epoch, nullptr);
    } else if (Uniform(shared_->shared_keys) != 0) {
      AttendSplits<kSplitPositions / kPositionsAtOnce, kGroup>(s, layer, layer_index, part, splits, qkv_epoch,
                                                               KeptQuery(part, layer_index));
    } else {
      AttendSplits<kSplitPositions / kPositionsAtOnce, 1>(s, layer, layer_index, part, splits, qkv_epoch,
                                                          KeptQuery(part, layer_index));
    }
  }
  if constexpr (kTalker) {
    if (Uniform(shared_->splits) == 1 || warp_ >= Traits::kCombiners) return;
    // As many as tiles of the narrow residual stream, and dealt in the same way.
    static_assert(kQueryWidth / kCombined == OwnTiles(kPersistentHidden));
    const int units = kFolded ? Uniform(DealOf(*shared_, kPersistentHidden).own.count) : 1;
#pragma unroll 1
    for (int i = warp_; i < kRows * units; i += Traits::kCombiners) {
      const int row = i % kRows;
      if (Uniform(shared_->sequences[row]) < 0) continue;
      const int used = Uniform(UsedSplits(s, shared_->positions[row]));
      if (used > 1) CombineSplits(s, row, i / kRows, used);
    }
  }
}

template <typename Traits>
__device__ __forceinline__ void Block<Traits>::PrefetchCache(const PersistentStack& s, int layer) {
  constexpr int kLine = 64;  // elements
#pragma unroll 1
  for (int index = 0; index < Parts(); ++index) {
    const AttentionPart& part = shared_->parts[index][0];
#pragma unroll 1
    for (int i = 0; i < min(part.splits, 8); ++i) {
      const int line = thread_ % 128;
      if (PositionsBefore(part, i) + line / 2 > part.position) continue;
      const int side = thread_ / 128;  // keys, values
      const __nv_bfloat16* const p =
          SplitStarts(part)[i] + layer * LayerStride(s) + side * s.page_positions * kHeadDim + line * kLine;
      PrefetchL2(p);
    }
  }
}

template <typename Traits>
__device__ __forceinline__ int Block<Traits>::PositionsBefore(const AttentionPart& part, int i) {
  return (part.first_split + i * part.split_stride) * kSplitPositions;
}

template <typename Traits>
__device__ __forceinline__ void Block<Traits>::PublishSilence(const PersistentStack& s, int row, int head) {
  const int words = shared_->shared_keys ? kGroup * kHalf : kHalf;
  if (thread_ < words) {
    Publish(s.attended + row * (kQueryWidth / 2) + head * kHalf + thread_, 0, epoch_);
  }
}

template <typename Traits>
__device__ __forceinline__ float* Block<Traits>::KeptQuery(const AttentionPart& part, int layer_index) const {
  if (layer_index != a.aligned.layer || part.first_record != 0) return nullptr;
  return a.aligned.queries + shared_->sequences[part.row] * kHeadDim;
}

template <typename Traits>
template <int kTurns, int kQueries>
__device__ __forceinline__ void Block<Traits>::AttendSplits(const PersistentStack& s, const PersistentLayer& layer,
                                                            int layer_index, const AttentionPart& part, int splits,
                                                            uint32_t qkv_epoch, float* kept_query) {
  AttentionMemory& m = shared_->work.products.attention;
  const int64_t layer_offset = layer_index * LayerStride(s);
  const int value_offset = s.page_positions * kHeadDim;
  const int column = lane_ % kLanes * 8;
  const int mine = warp_ * (32 / kLanes) + lane_ / kLanes;
  // Positions are counted from a split's first on.
  const auto begin_of = [&](int i) {
    return s.window > 0 ? part.position + 1 - s.window - PositionsBefore(part, i) : 0;
  };
  const auto load = [&](int i, int offset, uint4(&words)[kTurns]) {
    const int begin = begin_of(i);
    const int cached = min(kSplitPositions, part.position + 1 - part.new_rows - PositionsBefore(part, i));
    // One address for all turns: otherwise the compiler would keep one per turn, in registers needed elsewhere.
    const __nv_bfloat16* const from = Now(SplitStarts(part)[i] + layer_offset + offset + mine * kHeadDim + column);
#pragma unroll
    for (int t = 0; t < kTurns; ++t) {
      const int p = t * kPositionsAtOnce + mine;
      words[t] = {};
      if (p >= begin && p < cached) LoadEight(from + t * kPositionsAtOnce * kHeadDim, &words[t]);
    }
  };
  uint4 keys[kTurns], values[kTurns];
  load(0, 0, keys);
  load(0, value_offset, values);
  {
    const int last = splits - 1;
    const int position = part.position - PositionsBefore(part, last);
    const bool has_new = position < kSplitPositions;
    const bool writes = has_new && (s.cache_heads == kHeads || part.head % kGroup == 0);
    PlaceHeads<kQueries>(s, layer, part, has_new ? part.new_rows : 0, qkv_epoch, &m,
                         writes ? SplitStarts(part)[last] + layer_offset + position * kHeadDim : nullptr, value_offset,
                         kept_query);
  }
  Team::Sync();

  float query[kQueries][8];
#pragma unroll
  for (int g = 0; g < kQueries; ++g) {
#pragma unroll
    for (int e = 0; e < 8; ++e) query[g][e] = m.q[g][column + e];
  }
  const float scale = 1.0F / sqrtf(static_cast<float>(kHeadDim));
#pragma unroll 1
  for (int i = 0; i < (kQueries == 1 ? 1 : splits); ++i) {
    const bool is_last = kQueries == 1 || i + 1 == splits;
    const int begin = begin_of(i);
    const int position = part.position - PositionsBefore(part, i);
    const int end = min(position + 1, kSplitPositions);
    if (position < kSplitPositions) {
#pragma unroll
      for (int t = 0; t < kTurns; ++t) {
        const int p = t * kPositionsAtOnce + mine;
        const int j = p - (position + 1 - part.new_rows);
        if (j >= 0 && p <= position) {
          keys[t] = *reinterpret_cast<const uint4*>(&m.new_keys[j][column]);
          values[t] = *reinterpret_cast<const uint4*>(&m.new_values[j][column]);
        }
      }
    }
    const auto valid = [&](int t) {
      const int p = t * kPositionsAtOnce + mine;
      return p >= begin && p < end;
    };
    float scores[kQueries][kTurns];
    SoftmaxPart<kQueries> sums;
    sums.Clear();
    ScorePositions<kLanes>(query, keys, scale, valid, scores, &sums);
    if (!is_last) load(i + 1, 0, keys);
    WeighValues<__nv_bfloat16>(scores, values, valid, &sums);
    if (!is_last) load(i + 1, value_offset, values);
    JoinLanes<kLanes>(&sums);
    const int place = i % kMergedSplits;
    if (lane_ < kLanes) {
#pragma unroll
      for (int g = 0; g < kQueries; ++g) {
        AttentionMemory::WarpResults& result = m.results[place * kQueries + g];
#pragma unroll
        for (int e = 0; e < 8; ++e) result.y[warp_][column + e] = sums.y[g][e];
        if (column == 0) {
          result.exponents[warp_] = sums.exponent[g];
          result.sums[warp_] = sums.sum[g];
        }
      }
    }
    if (is_last || place + 1 == kMergedSplits) {
      const bool whole = part.row_splits == 1;
      Word* const target = Now(MergeTarget<kQueries>(s, part, i - place));
      Team::Sync();
      MergeWarps<kQueries>(target, place + 1, whole);
      // The place is for the next splits, and then for the next phase's rows.
      Team::Sync();
    }
  }
}

template <typename Traits>
template <int kQueries>
__device__ __forceinline__ Word* Block<Traits>::MergeTarget(const PersistentStack& s, const AttentionPart& part,
                                                            int first) const {
  const int result = thread_ / kMergingThreads<kQueries>;
  const int d = thread_ % kMergingThreads<kQueries> * kQueries;
  const int head = part.head + result % kQueries;
  if (part.row_splits == 1) return s.attended + part.row * (kQueryWidth / 2) + (head * kHeadDim + d) / 2;
  return Record(s, part.row, head, part.first_record + (first + result / kQueries) * part.split_stride) + 2 + d;
}

template <typename Traits>
template <int kQueries>
__device__ __forceinline__ void Block<Traits>::MergeWarps(Word* target, int count, bool whole) {
  const int result = thread_ / kMergingThreads<kQueries>;
  if (result >= count * kQueries) return;
  const AttentionMemory::WarpResults& r = shared_->work.products.attention.results[result];
  const int d = thread_ % kMergingThreads<kQueries> * kQueries;
  int exponents[kWarps];
  float sums[kWarps], y[kWarps][kQueries];
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    exponents[w] = r.exponents[w];
    sums[w] = r.sums[w];
#pragma unroll
    for (int e = 0; e < kQueries; ++e) y[w][e] = r.y[w][d + e];
  }
  const auto [exponent, total, value] = MergeWarpParts(exponents, sums, y);
  if (whole) {
    const float low = value[0] / total;
    const float high = kQueries == 1 ? __shfl_down_sync(~0U, low, 1) : value[kQueries - 1] / total;
    if (kQueries == 2 || d % 2 == 0) Publish(target, PackBf16(low, high), epoch_);
    return;
  }
  if constexpr (kQueries == 1) {
    Publish(target, __float_as_uint(value[0]), epoch_ - 1);
  } else {
    PublishTwo(target, __float_as_uint(value[0]), __float_as_uint(value[1]), epoch_ - 1);
  }
  if (d == 0) PublishTwo(target - 2, __float_as_uint(total), static_cast<uint32_t>(exponent), epoch_ - 1);
}

template <typename Traits>
__device__ __forceinline__ Word* Block<Traits>::Record(const PersistentStack& s, int row, int head, int split) const {
  return s.records + ((static_cast<int64_t>(row) * kHeads + head) * PersistentSplits(kStreams) + split) * kRecordWords;
}

template <typename Traits>
__device__ __forceinline__ CombineMemory& Block<Traits>::Combine() const {
  if constexpr (Traits::kCombinesInPlace) {
    static_assert(sizeof(CombineMemory) <= kStreams * StageStride(kQueryWidth) * sizeof(__nv_bfloat16));
    return *reinterpret_cast<CombineMemory*>(Stage<kQueryWidth, kStreams>());
  } else {
    return shared_->work.products.rows.combine[warp_];
  }
}

template <typename Traits>
template <int kQueries>
__device__ __forceinline__ void Block<Traits>::PlaceHeads(const PersistentStack& s, const PersistentLayer& layer,
                                                          const AttentionPart& part, int new_rows, uint32_t qkv_epoch,
                                                          AttentionMemory* m, __nv_bfloat16* target, int value_offset,
                                                          float* kept_query) {
  if (warp_ >= kQueries + 2 * new_rows) return;
  const bool is_query = warp_ < kQueries;
  const bool is_value = warp_ >= kQueries + new_rows;
  const int j = is_query ? warp_ : is_value ? warp_ - kQueries - new_rows : warp_ - kQueries;
  const int back = is_query ? 0 : new_rows - 1 - j;
  const int row = part.row - back;
  const int source = is_query ? part.head + j : kHeads + (is_value ? kKvHeads : 0) + part.head / kGroup;
  const Word* const words = s.qkv + row * kQkvWidth + source * kHeadDim + lane_;
  const float* const norm = is_query ? layer.q_norm : layer.k_norm;
  const bool stored = back == 0 && target != nullptr;
  const bool kept = is_query && kept_query != nullptr && part.head + j == a.aligned.head;
  float low_norm[2] = {1, 1}, high_norm[2] = {1, 1}, sine[2], cosine[2];
#pragma unroll
  for (int p = 0; p < 2; ++p) {
    const int i = lane_ + 32 * p;
    if (norm != nullptr) {
      low_norm[p] = __ldg(norm + i);
      high_norm[p] = __ldg(norm + kHalf + i);
    }
    sine[p] = shared_->sine[Traits::kOwnAngles ? 0 : row][i];
    cosine[p] = shared_->cosine[Traits::kOwnAngles ? 0 : row][i];
  }
  uint2 seen[4];
  patience_.Await([&] {
    bool there = true;
#pragma unroll
    for (int p = 0; p < 4; ++p) seen[p] = LoadWord(words + 32 * (p / 2) + kHalf * (p % 2));
#pragma unroll
    for (int p = 0; p < 4; ++p) there = there && seen[p].y == qkv_epoch;
    return there;
  });
  __syncwarp();
  const float low[2] = {__uint_as_float(seen[0].x), __uint_as_float(seen[2].x)};
  const float high[2] = {__uint_as_float(seen[1].x), __uint_as_float(seen[3].x)};
  if (is_value) {
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const int i = lane_ + 32 * (p / 2) + kHalf * (p % 2);
      const __nv_bfloat16 rounded = FromFloat<__nv_bfloat16>(p % 2 == 0 ? low[p / 2] : high[p / 2]);
      m->new_values[j][i] = rounded;
      if (stored) target[value_offset + i] = rounded;
    }
    return;
  }
  NormAndRotate(low, high, norm != nullptr, low_norm, high_norm, s.eps, sine, cosine, kHalf, lane_,
                [&](int i, float value) {
                  if (is_query) {
                    m->q[j][i] = value;
                    if (kept) kept_query[i] = value;
                    return;
                  }
                  const __nv_bfloat16 rounded = FromFloat<__nv_bfloat16>(value);
                  m->new_keys[j][i] = rounded;
                  if (stored) target[i] = rounded;
                });
}

template <typename Traits>
__device__ __forceinline__ void Block<Traits>::CombineSplits(const PersistentStack& s, int row, int round, int splits) {
  static_assert(kMaxBlocks * kCombined == kQueryWidth && kCombined == 16);
  constexpr int kLanesOfSplit = kCombined / 2;  // two elements each
  constexpr int kLoads = kLanesOfSplit;         // for 32 splits
  CombineMemory& m = Combine();
  // Lanes may still read what they combined in the round before.
  if constexpr (kFolded) __syncwarp();
  const int first = TileAt(round) * kCombined;
  const Word* const records = Record(s, row, first / kHeadDim, 0);
  const int column = first % kHeadDim + lane_ % kLanesOfSplit * 2;
  const uint32_t epoch = epoch_ - 1;
  // 32 splits from `from` on: their elements to shared memory; returns the lane's own sum, and sets its exponent.
  // Zeros where there is none.
  const auto await = [&](int from, int* exponent) {
    const int count = min(32, splits - from);
    uint4 sums, values[kLoads];
    patience_.Await([&] {
      sums = {0, epoch, static_cast<uint32_t>(kNoExponent), epoch};
      if (lane_ < count) sums = LoadTwoWords(records + (from + lane_) * kRecordWords);
#pragma unroll
      for (int j = 0; j < kLoads; ++j) {
        const int split = j * (32 / kLanesOfSplit) + lane_ / kLanesOfSplit;
        values[j] = {0, epoch, 0, epoch};
        if (split < count) values[j] = LoadTwoWords(records + (from + split) * kRecordWords + 2 + column);
      }
      bool there = sums.y == epoch && sums.w == epoch;
#pragma unroll
      for (int j = 0; j < kLoads; ++j) there = there && values[j].y == epoch && values[j].w == epoch;
      return there;
    });
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      const int split = j * (32 / kLanesOfSplit) + lane_ / kLanesOfSplit;
      *reinterpret_cast<float2*>(&m.values[split][lane_ % kLanesOfSplit * 2]) = {__uint_as_float(values[j].x),
                                                                                 __uint_as_float(values[j].z)};
    }
    *exponent = static_cast<int>(sums.z);
    return __uint_as_float(sums.x);
  };
  const int d = lane_ % kCombined;
  int exponent = kNoExponent;
  float total = 0, value = 0;
#pragma unroll 1
  for (int from = 0; from < splits; from += 32) {
    if (from > 0) __syncwarp();
    int own = kNoExponent;
    const float sum = await(from, &own);
    const JoinFactors factors = FactorsToJoin(exponent, __reduce_max_sync(~0U, own));
    exponent = factors.exponent;
    total = __fmul_rn(total, factors.own);
    value = __fmul_rn(value, factors.own);
    m.factors[lane_] = {PowerOfTwo(own - exponent), sum};
    __syncwarp();
    const int count = min(32, splits - from);
#pragma unroll 1
    for (int k = 0; k < count; k += 8) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float2 factor = m.factors[k + j];
        total = WithPart(factor.x, factor.y, total);
        value = WithPart(factor.x, m.values[k + j][d], value);
      }
    }
  }
  const float result = value / total;
  const float next = __shfl_down_sync(~0U, result, 1);
  if (lane_ < kCombined && d % 2 == 0) {
    Publish(s.attended + row * (kQueryWidth / 2) + (first + d) / 2, PackBf16(result, next), epoch_);
  }
}

}  // namespace qtts::cuda::persistent

#endif  // QTTS_CUDA_PATHS_PERSISTENT_FRAME_ATTENTION_CUH_
