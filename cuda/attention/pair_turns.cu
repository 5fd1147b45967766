// SPDX-License-Identifier: LGPL-2.1-or-later
#include "attention/head_pairs.cuh"
#include "attention/head_pairs.h"
#include "rules/score_power.h"
#include "runtime/async_copy.cuh"

namespace qtts::cuda::attention {
namespace {

constexpr int kTurnWarps = 4;   // of a block
constexpr int kTurnBlocks = 6;  // on an SM, by register use

// Shared memory of one warp.
struct TurnMemory {
  alignas(16) Bf16 keys[kTurnPositions][kHeadDim];
  alignas(16) Bf16 values[kTurnPositions][kHeadDim];
  alignas(16) float q[kPair][kHeadDim];
  alignas(16) float weights[kPair][kTurnPositions];
};

// Contexts of a single turn: every position is the only one of its group of lanes. All weights are relative to the
// largest exponent of the turn, so that groups and warps are joined by plain sums.
class TurnWarp {
 public:
  using Placer = HeadPlacer<kHeadDim / 64>;

  __device__ __forceinline__ TurnWarp(const AttendArguments& arguments, TurnMemory* memory, int row, int kv_head)
      : a(arguments),
        m(*memory),
        row_(row),
        kv_head_(kv_head),
        sequence_(kv_head < a.kv_heads ? a.Sequence(row) : -1),
        position_(a.Position(row)),
        new_rows_(a.appended ? 0 : a.RowOfSequence(row) + 1) {
    if (absent()) return;
    key_ = static_cast<Bf16*>(a.pages[static_cast<int64_t>(sequence_) * a.pages_per_sequence]) +
           static_cast<int64_t>(a.layer * a.kv_heads + kv_head_) * 2 * a.page_positions * kHeadDim;
  }

  __device__ __forceinline__ bool absent() const { return sequence_ < 0 || position_ < 0; }
  __device__ __forceinline__ Placer NewPlacer(const float* norm, int back) const {
    return Placer(norm, a.inverse_frequencies, kHeadDim, max(0, position_ - back), static_cast<int>(lane_));
  }

  // Zeros in place of the new rows, and of the other position of the last pair.
  __device__ __forceinline__ void CopyCached() const {
    const Bf16* const from = key_ + lane_ * 8;
    const uint32_t keys = SharedAddress(m.keys) + lane_ * 16, values = SharedAddress(m.values) + lane_ * 16;
    const int cached = position_ + 1 - new_rows_ - static_cast<int>(lane_) / 16;
#pragma unroll
    for (int i = 0; i < kTurnPositions; i += 2) {
      if (i > position_) break;
      CopyAsync16(keys + i * kRowBytes, from + i * kHeadDim, i < cached);
      CopyAsync16(values + i * kRowBytes, from + (a.page_positions + i) * kHeadDim, i < cached);
    }
  }

  // Writes queries, keys and values of the new rows to shared memory, and the row's own key and value to the cache.
  __device__ __forceinline__ void PlaceHeads(const Placer& placer, const Placer& key_placer) {
    const float* const x = a.qkv + static_cast<int64_t>(row_) * a.qkv_width();
    Placer::Parts queries[kPair];
#pragma unroll
    for (int g = 0; g < kPair; ++g) queries[g] = placer.Load(x + (kv_head_ * kPair + g) * kHeadDim);
    const float* const own = x + (a.heads + kv_head_) * kHeadDim;
    const Placer::Parts key = placer.Load(own);
    const float4 value = LoadValue(own);
    // Three norms at once: lanes 0 to 2 have a factor each.
    const float sums[] = {WarpSum(placer.Squares(queries[0])), WarpSum(placer.Squares(queries[1])),
                          WarpSum(key_placer.Squares(key))};
    const bool of_key = lane_ == kPair;
    const float sum = lane_ == 0 ? sums[0] : of_key ? sums[kPair] : sums[1];
    const bool normed = of_key ? key_placer.normed() : placer.normed();
    const float factor = normed ? HeadFactor(sum, a.eps, kHeadDim / 2) : 1;
#pragma unroll
    for (int g = 0; g < kPair; ++g) {
      placer.Rotate(queries[g], __shfl_sync(~0U, factor, g), [&](int i, float v) { m.q[g][i] = v; });
    }
    const float key_factor = __shfl_sync(~0U, factor, kPair);
    AwaitAllCopies();
    __syncwarp();
    if (new_rows_ == 0) return;
    key_placer.Rotate(key, key_factor, [&](int i, float v) { m.keys[position_][i] = FromFloat<Bf16>(v); });
    PlaceValue(value, position_);
#pragma unroll 1
    for (int back = 1; back < new_rows_; ++back) {
      const float* const earlier = own - static_cast<int64_t>(back) * a.qkv_width();
      NewPlacer(a.k_norm, back).Place(earlier, a.eps, [&](int i, float v) {
        m.keys[position_ - back][i] = FromFloat<Bf16>(v);
      });
      PlaceValue(LoadValue(earlier), position_ - back);
    }
    __syncwarp();
    Bf16* const target = key_ + position_ * kHeadDim;
    reinterpret_cast<uint2*>(target)[lane_] = reinterpret_cast<const uint2*>(m.keys[position_])[lane_];
    reinterpret_cast<uint2*>(target + a.page_positions * kHeadDim)[lane_] =
        reinterpret_cast<const uint2*>(m.values[position_])[lane_];
  }

  // Scores all positions: a lane takes part in position lane / 8 of each batch, and ends with the score of one position
  // and query.
  __device__ __forceinline__ void Score() {
    const unsigned of_batch = lane_ / kPositionLanes, unit = lane_ % kPositionLanes;
    LaneQueries queries;
    queries.Load(m.q, lane_);
    float products[kBatch][kPair] = {};
#pragma unroll
    for (int c = 0; c < kBatch; ++c) {
      if (4 * c > position_) break;
      const auto* const key = reinterpret_cast<const uint4*>(m.keys[4 * c + of_batch]);
      queries.Multiply(key[unit], key[unit + kPositionLanes], products[c]);
    }
    const float score = ReduceBatch(products, lane_) * (1.0F / sqrtf(static_cast<float>(kHeadDim)));
    const int position = static_cast<int>(unit / 2 * 4 + of_batch);
    const bool seen = position <= position_;
    int exponent = seen ? ExponentOf(score) : kNoExponent;
#pragma unroll
    for (int offset = 2; offset <= 16; offset *= 2) exponent = max(exponent, __shfl_xor_sync(~0U, exponent, offset));
    m.weights[lane_ % kPair][position] = seen ? WeightOf<false>(score, exponent) : 0;
  }

  __device__ __forceinline__ void WeighAndStore() const {
    const int last = position_ / 2;
    float totals[kPair] = {}, merged[kPair][4] = {};
#pragma unroll 2
    for (int w = 0; w <= last; ++w) {
      float values[2][4];
#pragma unroll
      for (int n = 0; n < 2; ++n) LoadFour(m.values[2 * w + n], lane_, values[n]);
#pragma unroll
      for (int g = 0; g < kPair; ++g) {
        const float2 weights = *reinterpret_cast<const float2*>(&m.weights[g][2 * w]);
        totals[g] = __fadd_rn(totals[g], __fadd_rn(weights.x, weights.y));
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          // Each position's part is a sum that begins with 0.
          const float joined = __fadd_rn(__fmaf_rn(weights.x, values[0][e], 0), __fmaf_rn(weights.y, values[1][e], 0));
          merged[g][e] = __fadd_rn(merged[g][e], joined);
        }
      }
    }
    if (last + 1 < kWarps) AddZero(&merged);
#pragma unroll
    for (int g = 0; g < kPair; ++g) {
#pragma unroll
      for (int e = 0; e < 4; ++e) merged[g][e] /= totals[g];
    }
    StorePair(a, row_, kv_head_, lane_, merged);
  }

 private:
  // Four elements of the value that belongs to a key.
  __device__ __forceinline__ float4 LoadValue(const float* key) const {
    return __ldcg(reinterpret_cast<const float4*>(key + a.kv_heads * kHeadDim) + lane_);
  }
  __device__ __forceinline__ void PlaceValue(const float4& v, int position) const {
    reinterpret_cast<uint2*>(m.values[position])[lane_] = {PackBf16(v.x, v.y), PackBf16(v.z, v.w)};
  }

  const AttendArguments& a;
  TurnMemory& m;
  const unsigned lane_ = threadIdx.x % 32;
  const int row_, kv_head_, sequence_, position_, new_rows_;
  Bf16* key_ = nullptr;  // of position 0
};

__global__ void __launch_bounds__(32 * kTurnWarps, kTurnBlocks) PairTurnKernel(AttendArguments a) {
  __shared__ TurnMemory memories[kTurnWarps];
  TurnWarp warp(a, &memories[threadIdx.x / 32], static_cast<int>(blockIdx.y),
                static_cast<int>(blockIdx.x * kTurnWarps + threadIdx.x / 32));
  const bool absent = warp.absent();
  if (!absent && !a.appended) warp.CopyCached();
  const bool live = a.live == nullptr || LoadL2(a.live) != 0;
  const TurnWarp::Placer placer = warp.NewPlacer(a.q_norm, 0);
  TurnWarp::Placer key_placer = placer;
  key_placer.SetNorm(a.k_norm);

  WaitForPrevious();
  LetNextStart();
  if (absent || !live) {
    AwaitAllCopies();
    return;
  }
  if (a.appended) warp.CopyCached();
  warp.PlaceHeads(placer, key_placer);
  __syncwarp();
  warp.Score();
  __syncwarp();
  warp.WeighAndStore();
}

}  // namespace

bool CanAttendPairTurns(Precision precision, const AttendArguments& a) {
  return AreHeadPairs(precision, a) && a.pages_per_sequence == 1 && a.page_positions <= kTurnPositions;
}

void AttendPairTurns(const Launcher& launch, const AttendArguments& a, int64_t rows) {
  const dim3 grid(static_cast<unsigned>((a.kv_heads + kTurnWarps - 1) / kTurnWarps), static_cast<unsigned>(rows));
  launch(PairTurnKernel, grid, 32 * kTurnWarps, 0, a);
}

}  // namespace qtts::cuda::attention
