// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_FRAME_PRODUCTS_CUH_
#define QTTS_CUDA_PATHS_PERSISTENT_FRAME_PRODUCTS_CUH_

#include <cstdint>

#include "paths/persistent/frame_block.cuh"
#include "paths/persistent/frame_rows.cuh"
#include "paths/persistent/frame_shape.cuh"
#include "paths/persistent/team.cuh"
#include "paths/persistent/weight_ring.cuh"
#include "paths/persistent/words.cuh"
#include "rules/norm.cuh"
#include "rules/product.cuh"
#include "runtime/device_math.cuh"
#include "runtime/fragment.h"

// The persistent kernel's products: weights from the ring times staged rows, and their epilogue.
namespace qtts::cuda::persistent {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Maximum weights that a warp waits for at once, unless a tile has more.
inline constexpr int kTogetherBytes = 96 << 10;

// A warp's share of kTogether tiles (gemm.h) of kHalves * 8 outputs.
template <int kColumns_, int kHalves_, int kTogether_>
struct Weights {
  static constexpr int kColumns = kColumns_;
  static constexpr int kHalves = kHalves_;
  static constexpr int kTogether = kTogether_;
  static constexpr int kShare = ShareOf(kColumns) / kChunk;  // chunks of a warp
  uint4 chunks[kShare][kTogether][kHalves];
};

template <int kTalkerHidden, int kStreams>
template <typename W>
__device__ __forceinline__ void Block<kTalkerHidden, kStreams>::Load(W* w) {
  constexpr int kChunkBytes = 512 * W::kHalves;
  constexpr int kPieceChunks = kPieceBytes / kChunkBytes;
  constexpr int kTilePieces = W::kColumns / kChunk / kPieceChunks;
  constexpr bool kCrosses = kPieceChunks % W::kShare != 0;  // a warp's chunks can lie in two pieces
  const int begin = warp_ * W::kShare;
  const int first_piece = begin / kPieceChunks;
  // Chunks of the share that lie in the first piece.
  const int before = kCrosses ? (first_piece + 1) * kPieceChunks - begin : W::kShare;
  ring_.template Await<W::kTogether * kTilePieces>();
#pragma unroll
  for (int t = 0; t < W::kTogether; ++t) {
    const int piece = t * kTilePieces + first_piece;
    const char* const weights = ring_.Piece(piece) + (begin - first_piece * kPieceChunks) * kChunkBytes + lane_ * 16;
    const char* const crossed =
        kCrosses ? ring_.Piece(min(piece + 1, (t + 1) * kTilePieces - 1)) + lane_ * 16 - before * kChunkBytes : nullptr;
#pragma unroll
    for (int c = 0; c < W::kShare; ++c) {
      const char* const at = (kCrosses && c >= before ? crossed : weights) + c * kChunkBytes;
#pragma unroll
      for (int h = 0; h < W::kHalves; ++h) w->chunks[c][t][h] = *reinterpret_cast<const uint4*>(at + 512 * h);
    }
  }
  // The loads must have returned before their places in the ring are given back, since nothing else delays the next
  // copies into them. The compiler waits for a load where its result is used: all are used here.
  uint32_t bits = ~0U;
#pragma unroll
  for (int c = 0; c < W::kShare; ++c) {
#pragma unroll
    for (int t = 0; t < W::kTogether; ++t) {
#pragma unroll
      for (int h = 0; h < W::kHalves; ++h) bits &= w->chunks[c][t][h].x;
    }
  }
  if (bits == ~0U) *static_cast<volatile unsigned*>(&shared_->seen) = 1;
  ring_.template GiveBack<W::kTogether * kTilePieces>();
}

template <int kTalkerHidden, int kStreams>
template <int kRows, bool kSquares, typename W>
__device__ __forceinline__ void Block<kTalkerHidden, kStreams>::Multiply(const W& w, int first) {
  constexpr int kSpans = ShareOf(W::kColumns) / 128;
  static_assert(!kSquares || 2 * W::kShare >= kSquaresSteps);
  const int own_row = UnitFragment::Row(lane_);
  const __nv_bfloat16* const stage =
      Stage<W::kColumns, kRows>() + own_row * StageStride(W::kColumns) + UnitFragment::Column(lane_);
  float sums[W::kTogether][4] = {};
#pragma unroll
  for (int c = 0; c < W::kShare; ++c) {
    const uint4 b = own_row < kRows ? *reinterpret_cast<const uint4*>(stage + c * kChunk) : uint4{};
#pragma unroll
    for (int t = 0; t < W::kTogether; ++t) {
      const uint4& low = w.chunks[c][t][0];
      const uint4 high = W::kHalves == 2 ? w.chunks[c][t][W::kHalves - 1] : uint4{};
      MultiplyStep<0>(sums[t], low, high, b);
    }
    if constexpr (kSquares) SquaresStep<kRows, kSpans>(2 * c);
#pragma unroll
    for (int t = 0; t < W::kTogether; ++t) {
      const uint4& low = w.chunks[c][t][0];
      const uint4 high = W::kHalves == 2 ? w.chunks[c][t][W::kHalves - 1] : uint4{};
      MultiplyStep<1>(sums[t], low, high, b);
    }
    if constexpr (kSquares) SquaresStep<kRows, kSpans>(2 * c + 1);
  }
#pragma unroll
  for (int t = 0; t < W::kTogether; ++t) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = SumFragment::Column(lane_, i);
      if (row >= kRows) continue;
      float* const out = shared_->work.products.partial[partial_] +
                         (((first + t) * kWarps + warp_) * kRows + row) * 16 + SumFragment::Row(lane_, 0);
      out[0] = sums[t][i];
      if (W::kHalves == 2) out[8] = sums[t][2 + i];
    }
  }
}

template <int kTalkerHidden, int kStreams>
template <int kColumns, int kHalves, int kTiles, int kRows, bool kSquares, typename StageRows>
__device__ __forceinline__ void Block<kTalkerHidden, kStreams>::Multiply(const StageRows& stage) {
  constexpr int kTileBytes = kColumns * 8 * kHalves * 2;
  constexpr int kTogether = kTiles * kTileBytes <= kTogetherBytes ? kTiles : 1;
  Weights<kColumns, kHalves, kTogether> w;
  Load(&w);
  stage();
  Multiply<kRows, kSquares>(w, 0);
#pragma unroll 1
  for (int first = kTogether; first < kTiles; first += kTogether) {
    Load(&w);
    Multiply<kRows, false>(w, first);
  }
}

template <int kTalkerHidden, int kStreams>
template <int kOutputs, int kTiles, int kRows, typename Target, typename Finish>
__device__ __forceinline__ void Block<kTalkerHidden, kStreams>::FinishRows(const Target& target, const Finish& finish) {
  constexpr int kCount = kTiles * kRows * kOutputs;
  static_assert(kCount <= kTeamThreads, "an output for each thread");
  const int i = min(thread_, kCount - 1);
  const int row = i / kOutputs % kRows;
  const int tile = i / (kOutputs * kRows);
  auto* const address = Now(target(tile, row, i % kOutputs));
  Team::Sync();
  if (warp_ * 32 < kCount) {
    finish(address, tile, row, i % kOutputs, thread_ < kCount,
           shared_->work.products.partial[partial_] + (tile * kWarps * kRows + row) * 16);
  }
  // The other half is for the next; nobody reads it any more.
  partial_ ^= 1;
}

template <int kTalkerHidden, int kStreams>
template <int kColumns>
__device__ __forceinline__ float Block<kTalkerHidden, kStreams>::Factor(const PersistentStack& s, int row) const {
  return NormFactor(&shared_->squares[squares_][0][row], MaxRows(kStreams), kColumns, s.eps);
}

template <int kTalkerHidden, int kStreams>
template <int kHidden, int kRows>
__device__ __forceinline__ float Block<kTalkerHidden, kStreams>::OwnNorm(const float* norm) const {
  constexpr int kCount = kHidden / 8 / kBlocks * 8 * kRows;
  const int i = thread_;
  return i < kCount ? __ldg(norm + TileAt(i / (8 * kRows)) * 8 + i % 8) : 0;
}

template <int kTalkerHidden, int kStreams>
template <int kHidden, int kRows>
__device__ __forceinline__ void Block<kTalkerHidden, kStreams>::AddToOwn(const float* bias, float norm, Quad* target) {
  FinishRows<8, kHidden / 8 / kBlocks, kRows>(
      [&](int tile, int row, int m) { return target + row * (kHidden / 4) + (TileAt(tile) * 8 + m) / 4; },
      [&](Quad* quad, int tile, int, int m, bool valid, const float* partial) {
        float value = SumOfShares(partial + m, kRows * 16, 1);
        if (bias != nullptr) value = __fadd_rn(value, bias[TileAt(tile) * 8 + m]);
        value = __fadd_rn(own_, value);
        own_ = value;
        PublishOwn(quad, norm, valid && m % 4 == 0);
      });
}

template <int kTalkerHidden, int kStreams>
__device__ __forceinline__ void Block<kTalkerHidden, kStreams>::PublishOwn(Quad* quad, float norm, bool first) {
  const float value = own_;
  const float normed = value * norm;
  const float x1 = __shfl_down_sync(~0U, value, 1), n1 = __shfl_down_sync(~0U, normed, 1);
  const float x2 = __shfl_down_sync(~0U, value, 2), n2 = __shfl_down_sync(~0U, normed, 2);
  const float x3 = __shfl_down_sync(~0U, value, 3), n3 = __shfl_down_sync(~0U, normed, 3);
  if (first) {
    Publish(quad, {PackBf16(normed, n1), PackBf16(n2, n3), __float_as_uint(SumOfSquares(value, x1, x2, x3)), epoch_});
  }
}

template <int kTalkerHidden, int kStreams>
template <int kHidden, int kRows>
__device__ __forceinline__ void Block<kTalkerHidden, kStreams>::PublishInput(const PersistentStack& s, int pass) {
  constexpr int kCount = kHidden / 8 / kBlocks * 8 * kRows;
  TakeOwn<kHidden, kRows>(pass);
  ++epoch_;
  if (warp_ * 32 >= kCount) return;
  const int i = min(thread_, kCount - 1);
  const int column = TileAt(i / (8 * kRows)) * 8 + i % 8;
  PublishOwn(s.x + i / 8 % kRows * (kHidden / 4) + column / 4, __ldg(s.norm + column),
             thread_ < kCount && column % 4 == 0);
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace qtts::cuda::persistent

#endif  // QTTS_CUDA_PATHS_PERSISTENT_FRAME_PRODUCTS_CUH_
