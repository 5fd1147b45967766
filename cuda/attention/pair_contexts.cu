// SPDX-License-Identifier: LGPL-2.1-or-later
#include "attention/head_pairs.cuh"
#include "attention/head_pairs.h"
#include "rules/score_power.h"
#include "runtime/async_copy.cuh"

namespace qtts::cuda::attention {
namespace {

constexpr int kTurns = kSplitPositions / kTurnPositions;
constexpr int kHalfTurn = kTurnPositions / 2;
constexpr int kHalfWarps = kWarps / 2;

// Keys or values of half a split: the first or the second eight positions of each turn. One tile then holds a group's
// positions of all turns.
struct Tile {
  Bf16 rows[kTurns][kHalfTurn][kHeadDim];
};
constexpr int kTiles = 3;         // in flight or in use
constexpr int kTilesOfSplit = 4;  // two of keys, two of values

struct ContextMemory {
  alignas(16) Tile tiles[kTiles];
  union {
    alignas(16) float q[kPair][kHeadDim];  // until it is in registers
    // Scores of a split, then weights.
    alignas(16) float weights[2][kPair][kHalfTurn][kTurns];
  };
  alignas(16) Bf16 own_key[kHeadDim];
  alignas(16) Bf16 own_value[kHeadDim];
};
constexpr int kContextBlocks = 8;
// On an SM of compute capability 9.0: 228 KB, of which a block takes 1 KB besides its own.
static_assert((sizeof(ContextMemory) + 1024) * kContextBlocks <= 228 * 1024);

// Keys, then values of each split go through a ring of tiles. A split's weights are relative to the largest exponent so
// far, to which the sums of the splits before it are brought: all joins are plain sums.
class ContextWarp {
 public:
  __device__ __forceinline__ ContextWarp(const AttendArguments& arguments, ContextMemory* memory, int row, int kv_head)
      : a(arguments),
        m(*memory),
        row_(row),
        kv_head_(kv_head),
        sequence_(a.Sequence(row)),
        position_(a.Position(row)),
        cached_(a.appended ? position_ + 1 : position_),
        used_(last() / kSplitPositions + 1),
        tiles_(kTilesOfSplit * used_) {}

  __device__ __forceinline__ bool absent() const { return sequence_ < 0 || position_ < 0; }
  __device__ __forceinline__ int position() const { return position_; }

  __device__ __forceinline__ void CopyFirstTiles() {
    for (unsigned i = 0; i < kTiles; ++i) CopyTile(i);
  }

  // Writes the queries and the row's own key and value to shared memory, and the latter to the cache.
  __device__ __forceinline__ void PlaceHeads(HeadPlacer<kHeadDim / 64>* placer) {
    const float* const x = a.qkv + static_cast<int64_t>(row_) * a.qkv_width();
#pragma unroll
    for (int g = 0; g < kPair; ++g) {
      placer->Place(x + (kv_head_ * kPair + g) * kHeadDim, a.eps, [&](int i, float value) { m.q[g][i] = value; });
    }
    if (!a.appended) {
      const float* const source = x + (a.heads + kv_head_) * kHeadDim;
      Bf16* const target = PageOf(last() / kPagePositions) + HeadOffset(last());
      placer->SetNorm(a.k_norm);
      placer->Place(source, a.eps, [&](int i, float value) {
        const Bf16 rounded = FromFloat<Bf16>(value);
        m.own_key[i] = rounded;
        target[i] = rounded;
      });
#pragma unroll
      for (unsigned i = lane_; i < kHeadDim; i += 32) {
        const Bf16 rounded = FromFloat<Bf16>(LoadL2(source + a.kv_heads * kHeadDim + i));
        m.own_value[i] = rounded;
        target[kPagePositions * kHeadDim + i] = rounded;
      }
    }
    __syncwarp();
    queries_.Load(m.q, lane_);
  }

  __device__ __forceinline__ void Attend() {
    float values[kPair][4] = {};
    float merged[kPair][4];
#pragma unroll 1
    for (unsigned number = 0; number < tiles_; ++number) {
      AwaitCopies<kTiles - 1>();
      __syncwarp();
      const Place place = PlaceOf(number);
      Tile& tile = m.tiles[number % kTiles];
      const int turns = TurnsOf(place);
      AddOwnRow(place, &tile);
      if (!place.values) {
        if (turns > 0) Score(tile, place, turns);
        if (place.half == 1) MakeWeights(place.split);
      } else {
        if (place.half == 0) Clear(&merged);
        if (turns == kTurns) {
          Weigh<true>(tile, place.half, turns, &merged);
        } else {
          Weigh<false>(tile, place.half, turns, &merged);
        }
        if (place.half == 1) AddToResult(merged, &values);
      }
      __syncwarp();
      CopyTile(number + kTiles);
    }
#pragma unroll
    for (int g = 0; g < kPair; ++g) {
      const float total = __shfl_sync(~0U, total_, g * kHalfTurn);
#pragma unroll
      for (int e = 0; e < 4; ++e) values[g][e] /= total;
    }
    StorePair(a, row_, kv_head_, lane_, values);
  }

 private:
  // The row's own position; where there is no row, too.
  __device__ __forceinline__ unsigned last() const { return static_cast<unsigned>(max(0, position_)); }

  // The contents of a tile.
  struct Place {
    unsigned split, half;
    bool values;
    // Position of its first row.
    __device__ __forceinline__ unsigned position() const { return split * kSplitPositions + half * kHalfTurn; }
  };
  __device__ __forceinline__ static Place PlaceOf(unsigned number) {
    return {number / kTilesOfSplit, number % 2, number % kTilesOfSplit >= 2};
  }
  // Turns of a tile of which the row sees a position.
  __device__ __forceinline__ int TurnsOf(const Place& place) const {
    const int seen = position_ + 1 - static_cast<int>(place.position());
    return static_cast<int>(
        min(kTurns + 0U, (static_cast<unsigned>(max(seen, 0)) + kTurnPositions - 1) / kTurnPositions));
  }

  // The page-th page of the sequence; a lane keeps the address of one of 32. All lanes call it.
  __device__ __forceinline__ Bf16* PageOf(unsigned page) {
    if (page / 32 != page_group_) {
      page_group_ = page / 32;
      const unsigned own = page_group_ * 32 + lane_;
      page_ = 0;
      if (own <= last() / kPagePositions) {
        page_ = reinterpret_cast<uint64_t>(a.pages[static_cast<int64_t>(sequence_) * a.pages_per_sequence + own]);
      }
    }
    return reinterpret_cast<Bf16*>(__shfl_sync(~0U, page_, page % 32));
  }
  // Elements from a page's start to the key of `position`.
  __device__ __forceinline__ int64_t HeadOffset(unsigned position) const {
    return (static_cast<int64_t>(a.layer * a.kv_heads + kv_head_) * 2 * kPagePositions + position % kPagePositions) *
           kHeadDim;
  }

  // From the tile's first position to that of the first row of its i-th copy.
  __device__ __forceinline__ static int RowOfCopy(int i) { return i / 4 * kTurnPositions + i % 4 * 2; }
  // Starts copying a tile, if there are so many; a group of copies in any case. Zeros in place of rows of its turns
  // that aren't cached.
  __device__ __forceinline__ void CopyTile(unsigned number) {
    if (number < tiles_) {
      const Place place = PlaceOf(number);
      const unsigned first = place.position();
      const Bf16* const from = PageOf(first / kPagePositions) + HeadOffset(first) +
                               (place.values ? kPagePositions * kHeadDim : 0) + lane_ * 8;
      const uint32_t to = SharedAddress(&m.tiles[number % kTiles]) + lane_ * 16;
      constexpr int kCopies = kHalfTurn / 2;  // of a turn, two rows each
      const int cached = cached_ - static_cast<int>(first);
      if (cached >= kSplitPositions - kHalfTurn) {
#pragma unroll
        for (int i = 0; i < kTurns * kCopies; ++i) CopyAsync16(to + i * 2 * kRowBytes, from + RowOfCopy(i) * kHeadDim);
      } else {
        const int copies = TurnsOf(place) * kCopies;
#pragma unroll 4
        for (int i = 0; i < copies; ++i) {
          CopyAsync16(to + i * 2 * kRowBytes, from + RowOfCopy(i) * kHeadDim,
                      RowOfCopy(i) + static_cast<int>(lane_) / 16 < cached);
        }
      }
    }
    CommitCopies();
  }

  // Adds the row's own key or value to a tile that has arrived, if it belongs there.
  __device__ __forceinline__ void AddOwnRow(const Place& place, Tile* tile) const {
    const unsigned in_split = last() % kSplitPositions;
    if (a.appended || place.split != used_ - 1 || in_split / kHalfTurn % 2 != place.half) return;
    Bf16* const row = tile->rows[in_split / kTurnPositions][in_split % kHalfTurn];
    reinterpret_cast<uint2*>(row)[lane_] =
        reinterpret_cast<const uint2*>(place.values ? m.own_value : m.own_key)[lane_];
    __syncwarp();
  }

  // Scores a tile of keys.
  __device__ __forceinline__ void Score(const Tile& tile, const Place& place, int turns) const {
    const float scale = 1.0F / sqrtf(static_cast<float>(kHeadDim));
    const unsigned of_batch = lane_ / kPositionLanes, unit = lane_ % kPositionLanes;
#pragma unroll
    for (int t = 0; t < kTurns; t += 2) {
      if (t >= turns) break;
      float products[kBatch][kPair];
#pragma unroll
      for (int c = 0; c < kBatch; ++c) {
        const auto* const key = reinterpret_cast<const uint4*>(tile.rows[t + c / 2][c % 2 * 4 + of_batch]);
        queries_.Multiply(key[unit], key[unit + kPositionLanes], products[c]);
      }
      const unsigned c = unit / 2;
      m.weights[place.half][lane_ % 2][c % 2 * 4 + of_batch][t + c / 2] = ReduceBatch(products, lane_) * scale;
    }
  }

  // Makes a split's scores weights, and adds their sum to the total. A lane for each half, query and position of half a
  // turn.
  __device__ __forceinline__ void MakeWeights(unsigned split) {
    __syncwarp();
    const unsigned half = lane_ / (kPair * kHalfTurn), g = lane_ / kHalfTurn % kPair, n = lane_ % kHalfTurn;
    float* const mine = m.weights[half][g][n];
    const float4 four = *reinterpret_cast<const float4*>(mine);
    const float scores[kTurns] = {four.x, four.y, four.z, four.w};
    const unsigned first = split * kSplitPositions + half * kHalfTurn + n;
    const auto seen = [&](unsigned t) { return first + t * kTurnPositions <= last(); };
    int exponent = kNoExponent;
#pragma unroll
    for (int t = 0; t < kTurns; ++t) exponent = max(exponent, seen(t) ? ExponentOf(scores[t]) : kNoExponent);
#pragma unroll
    for (int offset = 1; offset < kHalfTurn; offset *= 2) {
      exponent = max(exponent, __shfl_xor_sync(~0U, exponent, offset));
    }
    exponent = max(exponent, __shfl_xor_sync(~0U, exponent, kPair * kHalfTurn));
    const JoinFactors factors = FactorsToJoin(exponent_, exponent);
    exponent_ = factors.exponent;
    before_ = factors.own;
    float sum = 0, weights[kTurns];
#pragma unroll
    for (int t = 0; t < kTurns; ++t) {
      weights[t] = seen(t) ? WeightOf<false>(scores[t], exponent_) : 0;
      sum = __fadd_rn(sum, weights[t]);
    }
    *reinterpret_cast<float4*>(mine) = {weights[0], weights[1], weights[2], weights[3]};
    // The pairs of groups, then the eight warps in order: warp w has the positions 2 w and 2 w + 1 of its turns.
    sum = __fadd_rn(sum, __shfl_xor_sync(~0U, sum, 1));
    float total = 0;
#pragma unroll
    for (unsigned w = 0; w < kWarps; ++w) {
      const unsigned from = w / kHalfWarps * (kPair * kHalfTurn) + g * kHalfTurn + w % kHalfWarps * 2;
      total = __fadd_rn(total, __shfl_sync(~0U, sum, from));
    }
    total_ = __fmaf_rn(total_, before_, total);
  }

  // Weighs a tile of values, and adds its warps to `merged`. kAll: it has all turns.
  template <bool kAll>
  __device__ __forceinline__ void Weigh(const Tile& tile, unsigned half, int turns, float (*merged)[kPair][4]) const {
    if (!kAll && turns == 0) return AddZero(merged);
#pragma unroll 2
    for (int w = 0; w < kHalfWarps; ++w) {
      float y[2][kPair][4];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        Clear(&y[n]);
        float weights[kPair][kTurns];
#pragma unroll
        for (int g = 0; g < kPair; ++g) {
          const float4 four = *reinterpret_cast<const float4*>(m.weights[half][g][2 * w + n]);
          weights[g][0] = four.x;
          weights[g][1] = four.y;
          weights[g][2] = four.z;
          weights[g][3] = four.w;
        }
#pragma unroll
        for (int t = 0; t < kTurns; ++t) {
          if (!kAll && t >= turns) break;
          float value[4];
          LoadFour(tile.rows[t][2 * w + n], lane_, value);
#pragma unroll
          for (int g = 0; g < kPair; ++g) {
#pragma unroll
            for (int e = 0; e < 4; ++e) y[n][g][e] += weights[g][t] * value[e];
          }
        }
        if (!kAll) AddZero(&y[n]);
      }
#pragma unroll
      for (int g = 0; g < kPair; ++g) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          (*merged)[g][e] = __fadd_rn((*merged)[g][e], __fadd_rn(y[0][g][e], y[1][g][e]));
        }
      }
    }
  }

  // Adds a split's result; that of a single split is the result.
  __device__ __forceinline__ void AddToResult(const float (&merged)[kPair][4], float (*values)[kPair][4]) const {
#pragma unroll
    for (int g = 0; g < kPair; ++g) {
      const float before = __shfl_sync(~0U, before_, g * kHalfTurn);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        (*values)[g][e] = used_ == 1 ? merged[g][e] : __fmaf_rn((*values)[g][e], before, merged[g][e]);
      }
    }
  }

  const AttendArguments& a;
  ContextMemory& m;
  const unsigned lane_ = threadIdx.x;
  const int row_, kv_head_, sequence_, position_;
  const int cached_;
  const unsigned used_;  // splits
  const unsigned tiles_;
  unsigned page_group_ = ~0U;
  uint64_t page_ = 0;
  // The exponent so far of query lane / 8 % 2, the sum of all weights relative to it, and the factor that brought the
  // splits before the last one to it.
  int exponent_ = kNoExponent;
  float total_ = 0, before_ = 0;
  LaneQueries queries_;
};

__global__ void __launch_bounds__(32, kContextBlocks) PairContextKernel(AttendArguments a) {
  __shared__ ContextMemory memory;
  ContextWarp warp(a, &memory, static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.x));
  const bool absent = warp.absent();
  // Keys and values of earlier frames are complete; those of the previous kernel are not.
  if (!absent && !a.appended) warp.CopyFirstTiles();
  const bool live = a.live == nullptr || LoadL2(a.live) != 0;
  HeadPlacer<kHeadDim / 64> placer(a.q_norm, a.inverse_frequencies, kHeadDim, max(0, warp.position()),
                                   static_cast<int>(threadIdx.x));

  WaitForPrevious();
  LetNextStart();
  if (absent || !live) {
    AwaitAllCopies();
    return;
  }
  if (a.appended) warp.CopyFirstTiles();
  warp.PlaceHeads(&placer);
  warp.Attend();
}

}  // namespace

bool CanAttendPairContexts(Precision precision, const AttendArguments& a) {
  return AreHeadPairs(precision, a) && a.page_positions == kPagePositions && (a.appended || a.per_sequence == 1);
}

void AttendPairContexts(const Launcher& launch, const AttendArguments& a, int64_t rows) {
  launch(PairContextKernel, dim3(static_cast<unsigned>(a.kv_heads), static_cast<unsigned>(rows)), 32, 0, a);
}

}  // namespace qtts::cuda::attention
