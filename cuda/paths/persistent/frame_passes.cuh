// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_FRAME_PASSES_CUH_
#define QTTS_CUDA_PATHS_PERSISTENT_FRAME_PASSES_CUH_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "paths/persistent/frame_attention.cuh"
#include "paths/persistent/frame_block.cuh"
#include "paths/persistent/frame_choice.cuh"
#include "paths/persistent/frame_order.h"
#include "paths/persistent/frame_products.cuh"
#include "paths/persistent/frame_rows.cuh"
#include "paths/persistent/frame_shape.cuh"
#include "paths/persistent/team.cuh"
#include "paths/persistent/words.cuh"
#include "rules/activation.cuh"
#include "rules/norm.cuh"
#include "rules/product.cuh"
#include "rules/softmax.cuh"
#include "runtime/device_math.cuh"

// The persistent kernel's phases, in their order: passes, the layers of each, and its head.
namespace qtts::cuda::persistent {

template <typename Traits>
__device__ __forceinline__ void Block<Traits>::Run() {
  constexpr bool kPaired = Paired(kStreams);
  constexpr bool kSameWidth = kTalkerHidden == kPersistentHidden;
  // The last blocks choose: the first have parts of the attention.
  const int choosing = blocks() - 1 - static_cast<int>(blockIdx.x);
  bool alive = true;
  int pass = kTalkerPass;
  BeginPass<kStreams>(pass);
#pragma unroll 1
  for (;;) {
    const bool talker = pass == kTalkerPass;
    const PersistentStack& s = shared_->stacks[talker ? 0 : 1];
    if (pass == (kPaired ? 0 : kHiddenPass)) {
      AwaitIds();
      if (__all_sync(~0U, id_ < 0)) {
        if (thread_ == 0) *static_cast<volatile unsigned*>(&shared_->stop) = 1;
        return;
      }
    }
    if (kPaired && pass == 0) {
      RunLayers<kPersistentHidden, MaxRows(kStreams), false>(s, pass);
    } else if (talker) {
      RunLayers<kTalkerHidden, kStreams, true>(s, pass);
      if (!a.runs_talker) PublishInput<kTalkerHidden, kStreams>(s, pass);
    } else {
      RunLayers<kPersistentHidden, kStreams, false>(s, pass);
    }
    if (pass == kHiddenPass) {
      // No warp may run ahead of those that still read.
      StageQuads<kPersistentHidden, kStreams>(s.x, kPersistentHidden / 4);
      pass = 0;
      BeginPass<kStreams>(pass);
      continue;
    }
    const int rows_apart = kPaired && pass == 0 ? 2 : 1;
    // While the last words of the pass are on their way.
    const int next = !talker ? pass + 1 : kPaired ? 0 : kHiddenPass;
    if (kPaired && talker) {
      BeginPass<MaxRows(kStreams)>(next);
    } else {
      BeginPass<kStreams>(next);
    }
    if (!kSameWidth && talker) {
      Head<kTalkerHidden>(s, pass, rows_apart);
    } else {
      Head<kPersistentHidden>(s, pass, rows_apart);
    }
    const int group = talker ? 0 : pass + 1;
    if (choosing < kStreams) alive = ChooseCode(choosing, group, alive);
    if (group + 1 == a.groups) return;
    pass = next;
    id_epoch_ = ++epoch_;
  }
}

template <typename Traits>
template <int kRows>
__device__ __forceinline__ void Block<Traits>::BeginPass(int pass) {
  constexpr int kPerSequence = kRows > kStreams ? kRows / kStreams : 1;
  const bool talker = pass == kTalkerPass;
  const PersistentStack& s = shared_->stacks[talker ? 0 : 1];
  Team::Sync();
  if (thread_ < kRows) {
    const int r = thread_;
    shared_->sequences[r] = talker ? shared_->slots[r] : r / kPerSequence;
    shared_->positions[r] = talker ? a.frame.positions[r] : kPerSequence == 2 ? r % 2 : pass + 1;
  }
  Team::Sync();
  // The predictor's cache is read by the block that has written it, in earlier passes, which is why query heads do
  // not share their keys in it; the talker's was written in earlier frames.
  constexpr int kSequences = kRows / kPerSequence;
  int splits = 1;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (shared_->sequences[r] >= 0) splits = max(splits, UsedSplits(s, shared_->positions[r]));
  }
  const bool shared_keys = talker && SharesKeys(splits, kSequences, blocks());
  const AttentionDeal deal = {shared_keys ? kKvHeads : kHeads, kSequences, blocks()};
  const int parts = kFolded ? deal.Parts() : 1;
  const int own_parts = kFolded ? deal.PartsOf(static_cast<int>(blockIdx.x)) : 1;
  const int items = Traits::kMaxItems / parts;
  // This block's `index`-th part, without what depends on its row; that is first_row or the next one.
  int first_row = 0;
  const auto part_of = [&](int index) {
    const int number = TileAt(index);
    first_row = deal.Sequence(number) * kPerSequence;
    AttentionPart part;
    part.head = deal.Head(number) * (kHeads / deal.heads);
    part.split_stride = deal.Stride();
    part.first_record = deal.FirstSplit(number);
    part.first_item = index * items;
    part.silent = shared_->sequences[first_row] < 0 && part.first_record == 0;
    return part;
  };
  AttentionPart part = part_of(kFolded ? min(thread_ / kPerSequence, parts - 1) : 0);
  if (thread_ < own_parts * kPerSequence) {
    const int new_row = thread_ % kPerSequence;
    part.row = first_row + new_row;
    part.new_rows = new_row + 1;
    part.position = shared_->positions[part.row];
    part.first_split = FirstSplit(s, part.position) + part.first_record;
    part.row_splits = shared_->sequences[first_row] < 0 ? 0 : UsedSplits(s, part.position);
    part.splits = min(items, (part.row_splits - part.first_record - 1 + part.split_stride) / part.split_stride);
    shared_->parts[thread_ / kPerSequence][new_row] = part;
  }
  if constexpr (kFolded) part = part_of(min(thread_ / items, parts - 1));
  // The rows of a sequence see the same splits: there are two only where it begins.
  const int sequence = shared_->sequences[first_row];
  const int position = shared_->positions[first_row];
  const int record = part.first_record + thread_ % items * part.split_stride;
  if (thread_ < Traits::kMaxItems && sequence >= 0 && record < UsedSplits(s, position)) {
    const int first = (FirstSplit(s, position) + record) * kSplitPositions;
    shared_->split_starts[thread_] =
        static_cast<__nv_bfloat16*>(
            s.pages[static_cast<int64_t>(sequence) * s.pages_per_sequence + first / s.page_positions]) +
        ((talker ? part.head / kGroup : part.head) * 2 * s.page_positions + first % s.page_positions) * kHeadDim;
  }
  if (thread_ == 0) {
    shared_->num_parts = own_parts;
    shared_->splits = splits;
    shared_->shared_keys = shared_keys;
  }
  const float* const frequencies = s.inverse_frequencies;
#pragma unroll 1
  for (int i = thread_; i < (Traits::kOwnAngles ? 1 : kRows) * kHalf; i += kTeamThreads) {
    sincosf(static_cast<float>(shared_->positions[Traits::kOwnAngles ? first_row : i / kHalf]) * frequencies[i % kHalf],
            &shared_->sine[i / kHalf][i % kHalf], &shared_->cosine[i / kHalf][i % kHalf]);
  }
  Team::Sync();
}

template <typename Traits>
template <int kHidden, int kRows, bool kTalker>
__device__ __forceinline__ void Block<Traits>::RunLayers(const PersistentStack& s, int pass) {
  const int num_layers = Uniform(s.num_layers);
#pragma unroll 1
  for (int i = 0; i < num_layers; ++i) {
    // Addresses are recomputed: keeping those of all layers would need more registers than there are.
    asm volatile("" : "+r"(thread_), "+r"(warp_), "+r"(lane_));
    PrefetchCache(s, i);
    RunLayer<kHidden, kRows, kTalker>(s, i, num_layers, pass, std::make_index_sequence<kLayerOperations.size()>());
  }
}

template <typename Traits>
template <int kHidden, int kRows, bool kTalker, size_t... kIndices>
__device__ __forceinline__ void Block<Traits>::RunLayer(const PersistentStack& s, int i, int num_layers, int pass,
                                                        std::index_sequence<kIndices...> /*operations*/) {
  const PersistentLayer& layer = shared_->layers[s.first_layer + i];
  (RunOperation<kLayerOperations[kIndices].operation, kHidden, kRows, kTalker>(s, layer, i, num_layers, pass), ...);
}

template <typename Traits>
template <Operation kOperation, int kHidden, int kRows, bool kTalker>
__device__ __forceinline__ void Block<Traits>::RunOperation(const PersistentStack& s, const PersistentLayer& layer,
                                                            int i, int num_layers, int pass) {
  if constexpr (kOperation == Operation::kQkv) {
    RunQkv<kHidden, kRows>(s, layer, i, pass);
  } else if constexpr (kOperation == Operation::kAttend) {
    Attend<kRows, kTalker>(s, layer, i);
  } else if constexpr (kOperation == Operation::kO) {
    RunO<kHidden, kRows>(s, layer);
  } else if constexpr (kOperation == Operation::kGated) {
    RunGated<kHidden, kRows>(s);
  } else {
    static_assert(kOperation == Operation::kDown, "every operation of a layer has a phase");
    RunDown<kHidden, kRows>(s, i, num_layers);
  }
}

template <typename Traits>
template <int kHidden, int kRows>
__device__ __forceinline__ void Block<Traits>::RunQkv(const PersistentStack& s, const PersistentLayer& layer, int i,
                                                      int pass) {
  constexpr int kTiles = Traits::QkvTiles(kRows);
  const TileDeal deal = DealOf(*shared_, kHidden).qkv;
  MultiplyNormed<kHidden, kTiles, kQkvTiles / kMaxBlocks, kRows>(
      kFolded ? Uniform(deal.count) : 0,
      [&] {
        if (i == 0) {
          StageInput<kHidden, kRows>(s, layer.input_norm, pass);
        } else {
          StageQuads<kHidden, kRows>(s.x, kHidden / 4);
        }
      },
      [&](int first, int tiles) {
        FinishRows<16, kTiles, kRows>(
            tiles,
            [&](int tile, int row, int m) { return s.qkv + row * kQkvWidth + TileAt(deal, first + tile) * 16 + m; },
            [&](Word* target, int tile, int row, int m, bool valid, const float* partial) {
              float value = SumOfShares(partial + m, kRows * 16, SumFactor<kHidden>(s, row));
              if (layer.qkv_bias != nullptr) {
                value = __fadd_rn(value, layer.qkv_bias[TileAt(deal, first + tile) * 16 + m]);
              }
              if (valid) Publish(target, __float_as_uint(value), epoch_);
            });
      });
  // After publishing, so that the other blocks can continue.
  if (i == 0) TakeOwn<kHidden, kRows>(pass);
}

template <typename Traits>
template <int kHidden, int kRows>
__device__ __forceinline__ void Block<Traits>::RunO(const PersistentStack& s, const PersistentLayer& layer) {
  AddProduct<kQueryWidth, kHidden, kRows>(s.attended, layer.o_bias, layer.post_norm, s.x_middle);
}

template <typename Traits>
template <int kHidden, int kRows>
__device__ __forceinline__ void Block<Traits>::RunGated(const PersistentStack& s) {
  constexpr int kIntermediate = PersistentIntermediate(kHidden);
  constexpr int kTiles = Traits::GatedTiles(kHidden, kRows);
  const TileDeal deal = DealOf(*shared_, kHidden).gated;
  MultiplyNormed<kHidden, kTiles, GatedTiles(kHidden) / kMaxBlocks, kRows>(
      kFolded ? Uniform(deal.count) : 0, [&] { StageQuads<kHidden, kRows>(s.x_middle, kHidden / 4); },
      [&](int first, int tiles) {
        FinishRows<8, kTiles, kRows>(
            tiles,
            [&](int tile, int row, int m) {
              return s.inner + row * (kIntermediate / 2) + TileAt(deal, first + tile) * 4 + m / 2;
            },
            [&](Word* target, int, int row, int m, bool valid, const float* partial) {
              const float factor = SumFactor<kHidden>(s, row);
              const float gate = SumOfShares(partial + m, kRows * 16, factor);
              const float value = Silu<__nv_bfloat16>(gate) * SumOfShares(partial + m + 8, kRows * 16, factor);
              const float next = __shfl_down_sync(~0U, value, 1);
              if (valid && m % 2 == 0) Publish(target, PackBf16(value, next), epoch_);
            });
      });
}

template <typename Traits>
template <int kHidden, int kRows>
__device__ __forceinline__ void Block<Traits>::RunDown(const PersistentStack& s, int i, int num_layers) {
  constexpr int kIntermediate = PersistentIntermediate(kHidden);
  const bool last = i + 1 == num_layers;
  AddProduct<kIntermediate, kHidden, kRows>(s.inner, nullptr,
                                            last ? s.norm : shared_->layers[s.first_layer + i + 1].input_norm, s.x);
}

template <typename Traits>
template <int kHidden>
__device__ __forceinline__ void Block<Traits>::Head(const PersistentStack& s, int pass, int apart) {
  const bool talker = pass == kTalkerPass;
  const int vocab = talker ? a.talker_vocab : a.predictor_vocab;
  float* const kept =
      talker ? a.talker_logits : a.predictor_logits + static_cast<int64_t>(pass) * kMaxRows * a.predictor_vocab;
  bool staged = false;
  const auto stage = [&] {
    if (!staged) {
      StageQuads<kHidden, kStreams>(s.x + (apart - 1) * (kHidden / 4), apart * (kHidden / 4));
      SumSquares<kHidden, kStreams>();
    }
    staged = true;
  };
  const uint32_t logits_epoch = epoch_ + 1;
#pragma unroll 1
  for (int tile = TileAt(0); tile * 16 < vocab; tile += blocks()) {
    Multiply<kHidden, 2, 1, kStreams, false>(1, stage);
    FinishRows<16, 1, kStreams>(
        1, [&](int, int row, int m) { return a.logits + row * kPersistentVocab + tile * 16 + m; },
        [&](Word* target, int, int row, int m, bool valid, const float* partial) {
          const int output = tile * 16 + m;
          const float value = SumOfShares(partial + m, kStreams * 16, SumFactor<kHidden>(s, row));
          if (valid && output < vocab) {
            Publish(target, __float_as_uint(value), logits_epoch);
            kept[row * vocab + output] = value;
          }
        });
  }
  if (!staged) {
    stage();
    // Warps' parts of the stage lie elsewhere in the next phase.
    Team::Sync();
  }
  epoch_ = logits_epoch;
  if (!talker) return;
  ++epoch_;
  input_epoch_ = epoch_;
  if (kTalkerHidden != kPersistentHidden) {
#pragma unroll 1
    for (int tile = TileAt(0); tile * 16 < kPersistentHidden; tile += blocks()) {
      Multiply<kHidden, 2, 1, kStreams, false>(1, [] {});
      FinishRows<16, 1, kStreams>(
          1, [&](int, int row, int m) { return a.input + row * kPersistentHidden + tile * 16 + m; },
          [&](Word* target, int, int row, int m, bool valid, const float* partial) {
            float value = SumOfShares(partial + m, kStreams * 16, SumFactor<kHidden>(s, row));
            if (a.projection_bias != nullptr) value = __fadd_rn(value, a.projection_bias[tile * 16 + m]);
            if (valid) Publish(target, __float_as_uint(value), epoch_);
          });
    }
  } else {
    // The hidden state itself; the squares are the head's.
    Team::Sync();
    // By whole warps, before some lanes leave.
    const int rounds = OwnRounds<kHidden>();
    const int i = thread_;
    if (i >= Traits::OwnOutputs(kHidden, kStreams)) return;
    const int row = OwnRow<kStreams>(i);
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
      const int column = OwnColumn<kHidden, kStreams>(round, i);
      const float value = Own<kHidden, kStreams>(round) * Factor<kHidden>(s, row) * s.norm[column];
      Publish(a.input + row * kPersistentHidden + column, __float_as_uint(value), epoch_);
    }
  }
}

}  // namespace qtts::cuda::persistent

#endif  // QTTS_CUDA_PATHS_PERSISTENT_FRAME_PASSES_CUH_
