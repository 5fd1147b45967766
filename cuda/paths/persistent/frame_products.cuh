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

// Returns how many of `tiles` tiles the warps wait for and multiply at once: as many as divide them and have at most
// `most` chunks, or one.
constexpr int TilesTogether(int tiles, int chunks, int most) {
  int together = tiles;
  while (together > 1 && (tiles % together != 0 || together * chunks > most)) --together;
  return together;
}

// Returns whether no warp's `share` chunks lie in more than two pieces of `chunks` chunks.
constexpr bool SharesLieInTwoPieces(int share, int chunks) {
  for (int begin = 0; begin < kWarps * share; begin += share) {
    if ((begin + share - 1) / chunks > begin / chunks + 1) return false;
  }
  return true;
}

// A warp's share of kTogether tiles (gemm.h) of kHalves * 8 outputs.
template <typename Storage, int kColumns_, int kHalves_, int kTogether_>
struct Weights {
  static constexpr int kColumns = kColumns_;
  static constexpr int kHalves = kHalves_;
  static constexpr int kTogether = kTogether_;
  static constexpr int kShare = ShareOf(kColumns) / kChunk;  // chunks of a warp
  typename Storage::Unit chunks[kShare][kTogether][kHalves];
};

template <typename Traits>
template <typename W>
__device__ __forceinline__ void Block<Traits>::Load(W* w, int tiles) {
  constexpr int kTilePieces = Storage::TileBytes(W::kColumns, 8 * W::kHalves) / kPieceBytes<Storage>;
  constexpr int kMaxWindow = Copies::kMaxWindow<Traits>;
  constexpr bool kMayBeFewer = kFolded && W::kTogether > 1;
  if constexpr (!kMayBeFewer && W::kTogether * kTilePieces <= kMaxWindow) {
    ring_.template Await<W::kTogether * kTilePieces>();
    LoadShare<W::kTogether>(w, 0, 0);
    ring_.template GiveBack<W::kTogether * kTilePieces>();
  } else {
    // Tile by tile, and of each the warps of a part of its columns after those of another: a warp's share lies in one
    // of kWindows windows.
    constexpr int kWindows = kTilePieces <= kMaxWindow ? 1 : kTilePieces <= 2 * kMaxWindow ? 2 : 4;
    constexpr int kWindow = kTilePieces / kWindows;
    static_assert(kWindow * kWindows == kTilePieces && kWindow <= kMaxWindow && kWarps % kWindows == 0);
    const int own = warp_ / (kWarps / kWindows);
#pragma unroll
    for (int t = 0; t < W::kTogether; ++t) {
      if (kMayBeFewer && t >= tiles) {
#pragma unroll
        for (int c = 0; c < W::kShare; ++c) {
#pragma unroll
          for (int h = 0; h < W::kHalves; ++h) w->chunks[c][t][h] = {};
        }
        continue;
      }
#pragma unroll 1
      for (int i = 0; i < own; ++i) {
        ring_.template Await<kWindow>();
        ring_.template GiveBack<kWindow>();
      }
      ring_.template Await<kWindow>();
      LoadShare<1>(w, t, own * kWindow);
      ring_.template GiveBack<kWindow>();
#pragma unroll 1
      for (int i = own + 1; i < kWindows; ++i) {
        ring_.template Await<kWindow>();
        ring_.template GiveBack<kWindow>();
      }
    }
  }
}

template <typename Traits>
template <int kTiles, typename W>
__device__ __forceinline__ void Block<Traits>::LoadShare(W* w, int first, int skipped) {
  constexpr int kChunkBytes = Storage::kChunkBytes * W::kHalves;
  constexpr int kPieceChunks = kPieceBytes<Storage> / kChunkBytes;
  constexpr int kTilePieces = W::kColumns / kChunk / kPieceChunks;
  constexpr bool kCrosses = kPieceChunks % W::kShare != 0;  // a warp's chunks can lie in two pieces
  static_assert(SharesLieInTwoPieces(W::kShare, kPieceChunks));
  const int begin = warp_ * W::kShare;
  const int first_piece = begin / kPieceChunks;
  // Chunks of the share that lie in the first piece.
  const int before = kCrosses ? (first_piece + 1) * kPieceChunks - begin : W::kShare;
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    const int piece = t * kTilePieces + first_piece;
    const char* const weights = ring_.Piece(piece - skipped) + (begin - first_piece * kPieceChunks) * kChunkBytes;
    const char* const crossed =
        kCrosses ? ring_.Piece(min(piece + 1, (t + 1) * kTilePieces - 1) - skipped) - before * kChunkBytes : nullptr;
#pragma unroll
    for (int c = 0; c < W::kShare; ++c) {
      const char* const at = (kCrosses && c >= before ? crossed : weights) + c * kChunkBytes;
      if constexpr (Storage::kLoadsHalves) {
#pragma unroll
        for (int h = 0; h < W::kHalves; ++h) {
          w->chunks[c][first + t][h] = Storage::Load(at + Storage::kChunkBytes * h, lane_);
        }
      } else {
        Storage::Load(at, lane_, w->chunks[c][first + t]);
      }
    }
  }
  // The loads must have returned before their places in the ring are given back, since nothing else delays the next
  // copies into them. The compiler waits for a load where its result is used: all are used here.
  uint32_t bits = ~0U;
#pragma unroll
  for (int c = 0; c < W::kShare; ++c) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int h = 0; h < W::kHalves; ++h) bits &= Storage::Word(w->chunks[c][first + t][h]);
    }
  }
  if (bits == ~0U) *static_cast<volatile unsigned*>(&shared_->seen) = 1;
}

template <typename Traits>
template <int kRows, bool kSquares, typename W>
__device__ __forceinline__ void Block<Traits>::Multiply(const W& w, int first) {
  constexpr int kSpans = ShareOf(W::kColumns) / 128;
  static_assert(!kSquares || 2 * W::kShare >= kSquaresSteps);
  // The matrix instruction has eight rows. Those that there are not are the last one again: nobody reads their sums.
  const int own_row = min(UnitFragment::Row(lane_), kRows - 1);
  const __nv_bfloat16* const stage =
      Stage<W::kColumns, kRows>() + own_row * StageStride(W::kColumns) + UnitFragment::Column(lane_);
  float sums[W::kTogether][4] = {};
#pragma unroll
  for (int c = 0; c < W::kShare; ++c) {
    const uint4 b = *reinterpret_cast<const uint4*>(stage + c * kChunk);
#pragma unroll
    for (int t = 0; t < W::kTogether; ++t) {
      const uint4 low = Storage::template Fragment<0>(w.chunks[c][t][0]);
      const uint4 high =
          W::kHalves == 2 ? Storage::template Fragment<W::kHalves - 1>(w.chunks[c][t][W::kHalves - 1]) : uint4{};
      MultiplyStep<0>(sums[t], low, high, b);
    }
    if constexpr (kSquares) SquaresStep<kRows, kSpans>(2 * c);
#pragma unroll
    for (int t = 0; t < W::kTogether; ++t) {
      const uint4 low = Storage::template Fragment<0>(w.chunks[c][t][0]);
      const uint4 high =
          W::kHalves == 2 ? Storage::template Fragment<W::kHalves - 1>(w.chunks[c][t][W::kHalves - 1]) : uint4{};
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

template <typename Traits>
template <int kColumns, int kHalves, int kTiles, int kRows, bool kSquares, typename StageRows>
__device__ __forceinline__ void Block<Traits>::Multiply(int tiles, const StageRows& stage) {
  constexpr int kTileChunks = kHalves * (kColumns / kChunk);
  constexpr int kTogether = TilesTogether(kTiles, kTileChunks, Storage::kTogetherChunks);
  Weights<Storage, kColumns, kHalves, kTogether> w;
  Load(&w, tiles);
  stage();
  Multiply<kRows, kSquares>(w, 0);
#pragma unroll 1
  for (int first = kTogether; first < (kFolded ? tiles : kTiles); first += kTogether) {
    Load(&w, tiles - first);
    Multiply<kRows, false>(w, first);
  }
}

template <typename Traits>
template <int kOutputs, int kTiles, int kRows, typename Target, typename Finish>
__device__ __forceinline__ void Block<Traits>::FinishRows(int tiles, const Target& target, const Finish& finish) {
  constexpr int kCount = kTiles * kRows * kOutputs;
  static_assert(kCount <= kTeamThreads, "an output for each thread");
  const int i = min(thread_, kCount - 1);
  const int row = i / kOutputs % kRows;
  int tile = i / (kOutputs * kRows);
  bool valid = thread_ < kCount;
  if constexpr (kFolded && kTiles > 1) {
    valid = valid && tile < tiles;
    tile = min(tile, tiles - 1);
  }
  auto* const address = Now(target(tile, row, i % kOutputs));
  Team::Sync();
  if (warp_ * 32 < kCount) {
    finish(address, tile, row, i % kOutputs, valid,
           shared_->work.products.partial[partial_] + (tile * kWarps * kRows + row) * 16);
  }
  // The other half is for the next; nobody reads it any more.
  partial_ ^= 1;
}

template <typename Traits>
template <int kColumns>
__device__ __forceinline__ float Block<Traits>::Factor(const PersistentStack& s, int row) const {
  return NormFactor(&shared_->squares[squares_][0][row], MaxRows(kStreams), kColumns, s.eps);
}

template <typename Traits>
template <int kColumns>
__device__ __forceinline__ float Block<Traits>::SumFactor(const PersistentStack& s, int row) const {
  const float factor = Factor<kColumns>(s, row);
  if constexpr (Storage::kSumFactor == 1) return factor;
  return __fmul_rn(factor, Storage::kSumFactor);
}

template <typename Traits>
template <int kHidden, int kRows>
__device__ __forceinline__ float Block<Traits>::Own(int round) const {
  if constexpr (kFolded) {
    constexpr int kCount = Traits::OwnOutputs(kHidden, kRows);
    return shared_->folded.own[round * kCount + min(thread_, kCount - 1)];
  } else {
    return own_;
  }
}

template <typename Traits>
template <int kHidden, int kRows>
__device__ __forceinline__ void Block<Traits>::SetOwn(int round, float value) {
  if constexpr (kFolded) {
    constexpr int kCount = Traits::OwnOutputs(kHidden, kRows);
    if (thread_ < kCount) shared_->folded.own[round * kCount + thread_] = value;
  } else {
    own_ = value;
  }
}

template <typename Traits>
template <int kHidden, int kRows>
__device__ __forceinline__ float Block<Traits>::OwnNorm(int round, const float* norm) const {
  const int i = thread_;
  return i < Traits::OwnOutputs(kHidden, kRows) ? __ldg(norm + OwnColumn<kHidden, kRows>(round, i)) : 0;
}

template <typename Traits>
template <int kHidden, int kRows>
__device__ __forceinline__ void Block<Traits>::AddToOwn(int round, int tiles, const float* bias, float norm,
                                                        Quad* target) {
  constexpr int kTiles = OwnTiles(kHidden) / kMaxBlocks;
  FinishRows<8, kTiles, kRows>(
      tiles,
      [&](int tile, int row, int m) {
        return target + row * (kHidden / 4) + (TileAt(round * kTiles + tile) * 8 + m) / 4;
      },
      [&](Quad* quad, int tile, int, int m, bool valid, const float* partial) {
        float value = SumOfShares(partial + m, kRows * 16, Storage::kSumFactor);
        if (bias != nullptr) value = __fadd_rn(value, bias[TileAt(round * kTiles + tile) * 8 + m]);
        value = __fadd_rn(Own<kHidden, kRows>(round), value);
        SetOwn<kHidden, kRows>(round, value);
        PublishOwn(quad, value, norm, valid && m % 4 == 0);
      });
}

template <typename Traits>
template <int kHidden, int kTiles, int kCount, int kRows, typename StageRows, typename Finish>
__device__ __forceinline__ void Block<Traits>::MultiplyNormed(int count, const StageRows& stage, const Finish& finish) {
  static_assert(kFolded || kCount % kTiles == 0);
  if constexpr (kFolded) {
    // One product for all rounds, to save code. The squares are summed up by themselves.
#pragma unroll 1
    for (int first = 0; first < count; first += kTiles) {
      const int tiles = min(kTiles, count - first);
      Multiply<kHidden, 2, kTiles, kRows, false>(tiles, [&] {
        if (first != 0) return;
        stage();
        SumSquares<kHidden, kRows>();
        ++epoch_;
      });
      finish(first, tiles);
    }
  } else {
    Multiply<kHidden, 2, kTiles, kRows, true>(kTiles, stage);
    ++epoch_;
    finish(0, kTiles);
#pragma unroll 1
    for (int first = kTiles; first < kCount; first += kTiles) {
      Multiply<kHidden, 2, kTiles, kRows, false>(kTiles, [] {});
      finish(first, kTiles);
    }
  }
}

template <typename Traits>
template <int kColumns, int kHidden, int kRows>
__device__ __forceinline__ void Block<Traits>::AddProduct(const Word* source, const float* bias, const float* norm,
                                                          Quad* target) {
  constexpr int kTiles = OwnTiles(kHidden) / kMaxBlocks;
  const int rounds = OwnRounds<kHidden>();
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    int tiles = kTiles;
    if constexpr (kFolded && kTiles > 1) {
      tiles = Uniform(min(kTiles, DealOf(*shared_, kHidden).own.count - round * kTiles));
    }
    // The epilogue's data for the next norm are loaded before the words arrive.
    const float own_norm = OwnNorm<kHidden, kRows>(round, norm);
    Multiply<kColumns, 1, kTiles, kRows, false>(tiles, [&] {
      if (kFolded && round != 0) return;
      StagePairs<kColumns, kRows>(source);
      ++epoch_;
    });
    AddToOwn<kHidden, kRows>(round, tiles, bias, own_norm, target);
  }
}

template <typename Traits>
__device__ __forceinline__ void Block<Traits>::PublishOwn(Quad* quad, float value, float norm, bool first) {
  const float normed = value * norm;
  const float x1 = __shfl_down_sync(~0U, value, 1), n1 = __shfl_down_sync(~0U, normed, 1);
  const float x2 = __shfl_down_sync(~0U, value, 2), n2 = __shfl_down_sync(~0U, normed, 2);
  const float x3 = __shfl_down_sync(~0U, value, 3), n3 = __shfl_down_sync(~0U, normed, 3);
  if (first) {
    Publish(quad, {PackBf16(normed, n1), PackBf16(n2, n3), __float_as_uint(SumOfSquares(value, x1, x2, x3)), epoch_});
  }
}

template <typename Traits>
template <int kHidden, int kRows>
__device__ __forceinline__ void Block<Traits>::PublishInput(const PersistentStack& s, int pass) {
  constexpr int kCount = Traits::OwnOutputs(kHidden, kRows);
  TakeOwn<kHidden, kRows>(pass);
  ++epoch_;
  if (warp_ * 32 >= kCount) return;
  const int i = min(thread_, kCount - 1);
  const int rounds = OwnRounds<kHidden>();
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    const int column = OwnColumn<kHidden, kRows>(round, i);
    PublishOwn(s.x + OwnRow<kRows>(i) * (kHidden / 4) + column / 4, Own<kHidden, kRows>(round), __ldg(s.norm + column),
               HasOwn<kHidden, kRows>(round, thread_) && column % 4 == 0);
  }
}

}  // namespace qtts::cuda::persistent

#endif  // QTTS_CUDA_PATHS_PERSISTENT_FRAME_PRODUCTS_CUH_
