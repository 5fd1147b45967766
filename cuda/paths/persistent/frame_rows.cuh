// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_FRAME_ROWS_CUH_
#define QTTS_CUDA_PATHS_PERSISTENT_FRAME_ROWS_CUH_

#include <cstdint>

#include "paths/persistent/frame_block.cuh"
#include "paths/persistent/frame_shape.cuh"
#include "paths/persistent/team.cuh"
#include "paths/persistent/words.cuh"
#include "rules/norm.cuh"
#include "rules/product.cuh"
#include "runtime/device_math.cuh"

// Stages the input rows of the persistent kernel's products in shared memory: from other thread blocks' words, or from
// a pass's input.
namespace qtts::cuda::persistent {

template <typename Traits>
template <int kColumns, int kRows>
__device__ __forceinline__ __nv_bfloat16* Block<Traits>::Stage() const {
  return shared_->work.products.rows.stage + warp_ * kRows * StageStride(kColumns);
}

template <typename Traits>
template <int kRows, int kSpans>
__device__ __forceinline__ void Block<Traits>::SquaresStep(int step) {
  if constexpr (NeedsSmallTiles(kRows)) {
    static_assert(kRows == 8);
    // Two lanes exchange half of their sums, and each goes on with the other half, until a lane has one. The additions
    // and their order stay the same.
    constexpr int kSums = kRows * kSpans;
    const int offset = 16 >> step;
    if (step + 1 < kSquaresSteps) {
      const int half = kSums >> (step + 1);
      const bool upper = (lane_ & offset) != 0;
#pragma unroll
      for (int i = 0; i < kSums / 2; ++i) {
        if (i >= max(half, 1)) continue;
        const float low = lane_squares_[i];
        const float high = half > 0 ? lane_squares_[i + half] : low;
        lane_squares_[i] = (upper ? high : low) + __shfl_xor_sync(~0U, upper ? low : high, offset);
      }
    } else if (step + 1 == kSquaresSteps) {
      static_assert(kSpans <= 2);
      float sum = lane_squares_[0];
      if (kSpans == 2) sum = __fadd_rn(sum, __shfl_xor_sync(~0U, sum, 2));
      if (lane_ % 4 == 0) shared_->squares[squares_][warp_][lane_ / 4] = sum;
    }
    return;
  }
  if (step + 1 < kSquaresSteps) {
#pragma unroll
    for (int i = 0; i < kRows * kSpans; ++i) lane_squares_[i] += __shfl_xor_sync(~0U, lane_squares_[i], 16 >> step);
  } else if (step + 1 == kSquaresSteps && lane_ == 0) {
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      float sum = lane_squares_[row * kSpans];
#pragma unroll
      for (int span = 1; span < kSpans; ++span) sum = __fadd_rn(sum, lane_squares_[row * kSpans + span]);
      shared_->squares[squares_][warp_][row] = sum;
    }
  }
}

template <typename Traits>
template <int kColumns, int kRows>
__device__ __forceinline__ void Block<Traits>::SumSquares() {
#pragma unroll
  for (int step = 0; step < kSquaresSteps; ++step) SquaresStep<kRows, ShareOf(kColumns) / 128>(step);
}

template <typename Traits>
template <int kColumns, int kRows>
__device__ __forceinline__ void Block<Traits>::StageQuads(const Quad* source, int row_stride) {
  constexpr int kSpans = ShareOf(kColumns) / 128;
  squares_ ^= 1;
  const Quad* const first = source + warp_ * (ShareOf(kColumns) / 4) + lane_;
  constexpr int kTogether = RowsTogether(kRows, kSpans);
  __nv_bfloat16* const stage = Stage<kColumns, kRows>() + lane_ * 4;
#pragma unroll
  for (int from = 0; from < kRows; from += kTogether) {
    Quad seen[kTogether][kSpans];
    patience_.Await([&] {
      bool there = true;
#pragma unroll
      for (int row = 0; row < kTogether; ++row) {
#pragma unroll
        for (int span = 0; span < kSpans; ++span) {
          seen[row][span] = LoadQuad(first + (from + row) * row_stride + span * 32);
        }
      }
#pragma unroll
      for (int row = 0; row < kTogether; ++row) {
#pragma unroll
        for (int span = 0; span < kSpans; ++span) there = there && seen[row][span].epoch == epoch_;
      }
      return there;
    });
#pragma unroll
    for (int row = 0; row < kTogether; ++row) {
#pragma unroll
      for (int span = 0; span < kSpans; ++span) {
        const Quad& quad = seen[row][span];
        *reinterpret_cast<uint2*>(stage + (from + row) * StageStride(kColumns) + span * 128) = {quad.low, quad.high};
        lane_squares_[(from + row) * kSpans + span] = __uint_as_float(quad.squares);
      }
    }
  }
  __syncwarp();
}

template <typename Traits>
template <int kColumns, int kRows>
__device__ __forceinline__ void Block<Traits>::StagePairs(const Word* source) {
  constexpr int kLoads = ShareOf(kColumns) / 128;  // of four columns a lane
  const Word* const first = source + warp_ * (ShareOf(kColumns) / 2) + lane_ * 2;
  __nv_bfloat16* const stage = Stage<kColumns, kRows>() + lane_ * 4;
  constexpr int kTogether = RowsTogether(kRows, kLoads);
#pragma unroll
  for (int from = 0; from < kRows; from += kTogether) {
    uint4 seen[kTogether][kLoads];
    patience_.Await([&] {
      bool there = true;
#pragma unroll
      for (int row = 0; row < kTogether; ++row) {
#pragma unroll
        for (int k = 0; k < kLoads; ++k) {
          seen[row][k] = LoadTwoWords(first + (from + row) * (kColumns / 2) + k * 64);
        }
      }
#pragma unroll
      for (int row = 0; row < kTogether; ++row) {
#pragma unroll
        for (int k = 0; k < kLoads; ++k) there = there && seen[row][k].y == epoch_ && seen[row][k].w == epoch_;
      }
      return there;
    });
#pragma unroll
    for (int row = 0; row < kTogether; ++row) {
#pragma unroll
      for (int k = 0; k < kLoads; ++k) {
        *reinterpret_cast<uint2*>(stage + (from + row) * StageStride(kColumns) + k * 128) = {seen[row][k].x,
                                                                                             seen[row][k].z};
      }
    }
  }
  __syncwarp();
}

template <typename Traits>
template <int kHidden>
__device__ __forceinline__ float4 Block<Traits>::TalkerInputAt(int row, int column) const {
  if (shared_->sequences[row] < 0) return {};
  const uint4 x = LoadL2(reinterpret_cast<const uint4*>(a.x + row * kHidden + column));
  return {__uint_as_float(x.x), __uint_as_float(x.y), __uint_as_float(x.z), __uint_as_float(x.w)};
}

template <typename Traits>
__device__ __forceinline__ float4 Block<Traits>::HiddenStateAt(int stream, int column) const {
  const Word* const words = a.input + stream * kPersistentHidden + column;
  uint4 low = LoadTwoWords(words);
  uint4 high = LoadTwoWords(words + 2);
  const uint2 first = Await(low, words, input_epoch_, patience_);
  const uint2 second = Await(high, words + 2, input_epoch_, patience_);
  return {__uint_as_float(first.x), __uint_as_float(first.y), __uint_as_float(second.x), __uint_as_float(second.y)};
}

template <typename Traits>
__device__ __forceinline__ float4 Block<Traits>::EmbeddingAt(int pass, int stream, int column) const {
  const int id = __shfl_sync(~0U, id_, stream);
  const PredictorPass& p = shared_->passes[pass];
  // Below 0, or of a wait that was given up.
  if (static_cast<unsigned>(id) >= p.table_rows) return {};
  const auto* const embedding =
      reinterpret_cast<const __nv_bfloat16*>(p.table) + static_cast<int64_t>(id) * p.table_stride;
  const uint2 four = __ldg(reinterpret_cast<const uint2*>(embedding + column));
  return {LowBf16(four.x), HighBf16(four.x), LowBf16(four.y), HighBf16(four.y)};
}

template <typename Traits>
template <int kHidden, int kRows>
__device__ __forceinline__ float4 Block<Traits>::InputAt(int pass, int row, int column) const {
  constexpr int kPerSequence = kRows > kStreams ? kRows / kStreams : 1;
  if (pass == kTalkerPass) return TalkerInputAt<kHidden>(row, column);
  const int stream = row / kPerSequence;
  if (pass == kHiddenPass || (kPerSequence == 2 && row % 2 == 0)) return HiddenStateAt(stream, column);
  return EmbeddingAt(pass, stream, column);
}

template <typename Traits>
__device__ __forceinline__ void Block<Traits>::AwaitIds() {
  const Word* const word = a.ids + min(lane_, kStreams - 1);
  uint2 seen;
  patience_.Await([&] {
    seen = LoadWord(word);
    return seen.y == id_epoch_;
  });
  id_ = lane_ < kStreams ? static_cast<int>(seen.x) : -1;
}

template <typename Traits>
template <int kHidden, int kRows>
__device__ __forceinline__ void Block<Traits>::StageInput(const PersistentStack& s, const float* norm, int pass) {
  constexpr int kSpans = ShareOf(kHidden) / 128;
  squares_ ^= 1;
  if (pass != kTalkerPass) AwaitIds();
  __nv_bfloat16* const stage = Stage<kHidden, kRows>() + lane_ * 4;
  const auto column_of = [&](int span) { return warp_ * ShareOf(kHidden) + span * 128 + lane_ * 4; };
  const auto place = [&](int row, int span, const float4& scale, const float4& x) {
    *reinterpret_cast<uint2*>(stage + row * StageStride(kHidden) + span * 128) = NormedFour(x.x, x.y, x.z, x.w, scale);
    lane_squares_[row * kSpans + span] = SumOfSquares(x.x, x.y, x.z, x.w);
  };
  if constexpr (NeedsSmallTiles(kRows)) {
    // All rows' loads come first, so that none waits for another.
    float4 x[kRows][kSpans];
    const auto load = [&](const auto& input_at) {
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
#pragma unroll
        for (int span = 0; span < kSpans; ++span) x[row][span] = input_at(row, column_of(span));
      }
    };
    if (pass == kTalkerPass) {
      load([&](int row, int column) { return TalkerInputAt<kHidden>(row, column); });
    } else if (pass == kHiddenPass) {
      load([&](int row, int column) { return HiddenStateAt(row, column); });
    } else {
      load([&](int row, int column) { return EmbeddingAt(pass, row, column); });
    }
#pragma unroll
    for (int span = 0; span < kSpans; ++span) {
      const float4 scale = __ldg(reinterpret_cast<const float4*>(norm + column_of(span)));
#pragma unroll
      for (int row = 0; row < kRows; ++row) place(row, span, scale, x[row][span]);
    }
  } else {
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
#pragma unroll
      for (int span = 0; span < kSpans; ++span) {
        const float4 scale = __ldg(reinterpret_cast<const float4*>(norm + column_of(span)));
        place(row, span, scale, InputAt<kHidden, kRows>(pass, row, column_of(span)));
      }
    }
  }
  __syncwarp();
}

template <typename Traits>
template <int kHidden, int kRows>
__device__ __forceinline__ void Block<Traits>::TakeOwn(int pass) {
  constexpr int kCount = Traits::OwnOutputs(kHidden, kRows);
  if (warp_ * 32 >= kCount) return;
  const int i = min(thread_, kCount - 1);
  const int rounds = OwnRounds<kHidden>();
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    const int column = OwnColumn<kHidden, kRows>(round, i);
    float own = 0;
    if constexpr (NeedsSmallTiles(kRows)) {
      static_assert(kRows == kStreams, "lanes exchange ids in one step");
      const float4 x = InputAt<kHidden, kRows>(pass, OwnRow<kRows>(i), column & ~3);
      own = column % 4 == 0 ? x.x : column % 4 == 1 ? x.y : column % 4 == 2 ? x.z : x.w;
    } else {
      // All lanes go through all rows together: ids are exchanged between them.
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        const float4 x = InputAt<kHidden, kRows>(pass, row, column & ~3);
        const float mine = column % 4 == 0 ? x.x : column % 4 == 1 ? x.y : column % 4 == 2 ? x.z : x.w;
        if (OwnRow<kRows>(i) == row) own = mine;
      }
    }
    SetOwn<kHidden, kRows>(round, own);
  }
}

}  // namespace qtts::cuda::persistent

#endif  // QTTS_CUDA_PATHS_PERSISTENT_FRAME_ROWS_CUH_
