// SPDX-License-Identifier: LGPL-2.1-or-later
#include "paths/persistent/frame_deal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "paths/persistent/frame_kernel.h"

// How the persistent kernel's work is dealt out to the thread blocks of cards with any number of SMs.
namespace qtts {
namespace {

using cuda::FrameKernelForm;
using cuda::kPersistentHeads;
using cuda::kPersistentHidden;
using cuda::kPersistentKvHeads;
using cuda::kPersistentMaxBlocks;
using cuda::kPersistentMinBlocks;
using cuda::PersistentCovers;
using cuda::PersistentIntermediate;
using cuda::RingCopies;
using cuda::persistent::AttentionDeal;
using cuda::persistent::ChooseBlocks;
using cuda::persistent::DealLayer;
using cuda::persistent::GatedTiles;
using cuda::persistent::kQkvTiles;
using cuda::persistent::LayerDeal;
using cuda::persistent::MaxItems;
using cuda::persistent::MaxParts;
using cuda::persistent::MaxWeights;
using cuda::persistent::OwnTiles;
using cuda::persistent::SharesKeys;
using cuda::persistent::TileDeal;

constexpr int kRowBuckets[] = {1, 2, 4, 8};
constexpr size_t k99KiB = size_t{99} << 10;
constexpr size_t k163KiB = size_t{163} << 10;
constexpr size_t k227KiB = size_t{227} << 10;

// Weights of a layer.
double Weights(int hidden) {
  constexpr int kQueryWidth = kPersistentHeads * cuda::kPersistentHeadDim;
  constexpr int kKvWidth = kPersistentKvHeads * cuda::kPersistentHeadDim;
  return hidden * (2.0 * kQueryWidth + 2.0 * kKvWidth + 3.0 * PersistentIntermediate(hidden));
}

TEST(FrameDeal, BlocksOfCards) {
  EXPECT_EQ(ChooseBlocks(15), 0);
  EXPECT_EQ(ChooseBlocks(16), 16);
  EXPECT_EQ(ChooseBlocks(28), 28);
  EXPECT_EQ(ChooseBlocks(46), 46);
  EXPECT_EQ(ChooseBlocks(58), 57);
  EXPECT_EQ(ChooseBlocks(64), 64);
  EXPECT_EQ(ChooseBlocks(80), 77);
  EXPECT_EQ(ChooseBlocks(108), 103);
  EXPECT_EQ(ChooseBlocks(128), 128);
  EXPECT_EQ(ChooseBlocks(170), 128);
  for (const int processors : {16, 28, 46, 58, 80, 108, 128}) {
    EXPECT_LE(MaxWeights(kPersistentHidden, ChooseBlocks(processors)) * processors, 1.13 * Weights(kPersistentHidden))
        << processors << " SMs";
  }
}

TEST(FrameDeal, MoreSmsNeverTakeLonger) {
  for (int processors = kPersistentMinBlocks + 1; processors <= 200; ++processors) {
    const int blocks = ChooseBlocks(processors);
    EXPECT_LE(blocks, processors);
    EXPECT_LE(blocks, kPersistentMaxBlocks);
    EXPECT_LE(MaxWeights(kPersistentHidden, blocks), MaxWeights(kPersistentHidden, ChooseBlocks(processors - 1)));
  }
}

TEST(FrameDeal, EveryTileIsDealtOnce) {
  for (int blocks = kPersistentMinBlocks; blocks <= kPersistentMaxBlocks; ++blocks) {
    for (const int hidden : cuda::kPersistentTalkerWidths) {
      SCOPED_TRACE(std::to_string(blocks) + " blocks, width " + std::to_string(hidden));
      std::vector<int> own(static_cast<size_t>(OwnTiles(hidden)));
      std::vector<int> qkv(kQkvTiles);
      std::vector<int> gated(static_cast<size_t>(GatedTiles(hidden)));
      for (int block = 0; block < blocks; ++block) {
        const auto take = [&](const TileDeal& deal, std::vector<int>* tiles) {
          EXPECT_GE(deal.count, 1) << "a block waits for the words of every phase";
          for (int i = 0; i < deal.count; ++i) ++tiles->at(static_cast<size_t>(deal.first + i * blocks));
        };
        const LayerDeal deal = DealLayer(hidden, block, blocks);
        take(deal.own, &own);
        take(deal.qkv, &qkv);
        take(deal.gated, &gated);
        EXPECT_EQ(deal.own.first, block) << "columns of the residual stream, and the attended ones";
      }
      for (const std::vector<int>* const tiles : {&own, &qkv, &gated}) {
        EXPECT_EQ(std::count(tiles->begin(), tiles->end(), 1), static_cast<int64_t>(tiles->size()));
      }
    }
  }
}

// The block of each (head, sequence, split) in a pass, as Block::BeginPass() deals them.
using Dealt = std::map<std::tuple<int, int, int>, int>;

Dealt Deal(const AttentionDeal& deal, int splits, bool folded, int rows) {
  Dealt dealt;
  EXPECT_LE(deal.Parts(), MaxParts(rows, folded));
  const int capacity = MaxItems(rows, folded) / deal.Parts();
  for (int block = 0; block < deal.blocks; ++block) {
    EXPECT_LE(deal.PartsOf(block), deal.Parts());
    for (int index = 0; index < deal.PartsOf(block); ++index) {
      const int number = block + index * deal.blocks;
      int items = 0;
      for (int split = deal.FirstSplit(number); split < splits; split += deal.Stride()) {
        const bool is_new = dealt.emplace(std::tuple(deal.Head(number), deal.Sequence(number), split), block).second;
        EXPECT_TRUE(is_new) << "head " << deal.Head(number) << ", split " << split;
        ++items;
      }
      EXPECT_LE(items, capacity);
    }
  }
  return dealt;
}

class FrameDealOf : public ::testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  int blocks_ = std::get<0>(GetParam());
  bool folded_ = std::get<1>(GetParam());
};

TEST_P(FrameDealOf, TheTalkersSplitsAreAttendedToOnce) {
  for (const int rows : kRowBuckets) {
    for (int splits = 1; PersistentCovers(rows, splits); ++splits) {
      // Few, some, and the most.
      if (splits > 18 && splits % 31 != 0 && PersistentCovers(rows, splits + 1)) continue;
      SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(splits) + " splits");
      const bool shares = SharesKeys(splits, rows, blocks_);
      const AttentionDeal deal = {shares ? kPersistentKvHeads : kPersistentHeads, rows, blocks_};
      EXPECT_EQ(Deal(deal, splits, folded_, rows).size(), static_cast<size_t>(deal.heads * rows * splits));
      if (!shares) {
        EXPECT_GE(deal.Stride(), splits) << "a part of one query head has one split";
        EXPECT_EQ(deal.Parts(), 1);
      }
      if (HasFailure()) return;
    }
  }
}

// In all passes the same block has a row's head: it alone sees the keys that it wrote.
TEST_P(FrameDealOf, ThePredictorsHeadsAreAttendedToOnce) {
  for (const int sequences : kRowBuckets) {
    const Dealt dealt = Deal({kPersistentHeads, sequences, blocks_}, 1, folded_, sequences);
    EXPECT_EQ(dealt.size(), static_cast<size_t>(kPersistentHeads * sequences));
  }
}

INSTANTIATE_TEST_SUITE_P(Blocks, FrameDealOf, ::testing::Values(std::tuple(kPersistentMaxBlocks, false)),
                         [](const auto& /*test*/) { return "OfAll"; });
INSTANTIATE_TEST_SUITE_P(FoldedBlocks, FrameDealOf,
                         ::testing::Combine(::testing::Range(kPersistentMinBlocks, kPersistentMaxBlocks + 1),
                                            ::testing::Values(true)),
                         [](const auto& test) { return "Of" + std::to_string(std::get<0>(test.param)); });

struct Card {
  const char* name;
  int processors;
  size_t shared;
  RingCopies copies;
  int blocks;
  int blocks_beside;   // of the narrow talker's four rows and more, beside the codec
  int rows[2];         // the most of 0.6B and of 1.7B
  bool plain_one_row;  // the form that is not folded, for one row
};

TEST(FrameDeal, FormsOfCards) {
  const Card cards[] = {
      {"H100", 132, k227KiB, RingCopies::kBulk, 128, 128, {8, 8}, true},
      {"H100 PCIe", 114, k227KiB, RingCopies::kBulk, 103, 103, {8, 8}, false},
      {"H100 with code for 8.0", 132, k227KiB, RingCopies::kAsync, 128, 103, {8, 8}, true},
      {"A100", 108, k163KiB, RingCopies::kAsync, 103, 86, {8, 8}, false},
      {"A10G", 80, k99KiB, RingCopies::kAsync, 77, 77, {8, 4}, false},
      {"RTX 3060", 28, k99KiB, RingCopies::kAsync, 28, 28, {8, 4}, false},
      {"RTX 4090", 128, k99KiB, RingCopies::kAsync, 128, 103, {8, 4}, true},
      {"L4", 58, k99KiB, RingCopies::kAsync, 57, 57, {8, 4}, false},
      {"Orin", 16, k163KiB, RingCopies::kAsync, 16, 16, {8, 8}, false},
  };
  for (const Card& card : cards) {
    for (const int hidden : cuda::kPersistentTalkerWidths) {
      const int most = card.rows[hidden == kPersistentHidden ? 0 : 1];
      for (const int rows : kRowBuckets) {
        SCOPED_TRACE(std::string(card.name) + ", width " + std::to_string(hidden) + ", rows " + std::to_string(rows));
        const FrameKernelForm form = ChooseForm(hidden, rows, card.copies, card.processors, card.shared);
        const int blocks = rows >= 4 && hidden == kPersistentHidden ? card.blocks_beside : card.blocks;
        EXPECT_EQ(form.blocks, rows <= most ? blocks : 0);
        if (form.blocks == 0) continue;
        EXPECT_LE(FrameKernelBytes(form), card.shared);
        EXPECT_GE(form.ring_slots, MinRingSlots(form));
        EXPECT_TRUE(form.folded || form.blocks == kPersistentMaxBlocks);
        if (rows == 1) {
          EXPECT_EQ(!form.folded, card.plain_one_row);
          if (card.copies == RingCopies::kAsync) {
            EXPECT_EQ(cuda::AsyncCopyWarps(form.ring_slots), 2);
          }
        }
      }
    }
  }
}

// One row has a form with weights of 8 bits wherever it has one with BF16, in a ring of more chunks.
TEST(FrameDeal, FormsOfInt8) {
  for (const int hidden : cuda::kPersistentTalkerWidths) {
    for (const auto& [copies, processors, shared] :
         {std::tuple(RingCopies::kBulk, 132, k227KiB), std::tuple(RingCopies::kAsync, 16, k99KiB)}) {
      const FrameKernelForm bf16 = ChooseForm(hidden, 1, copies, processors, shared);
      const FrameKernelForm int8 = ChooseForm(hidden, 1, copies, processors, shared, false, cuda::WeightForm::kInt8);
      EXPECT_EQ(int8.blocks, bf16.blocks);
      const auto chunks = [&](const FrameKernelForm& form, int chunk_bytes) {
        return form.ring_slots * PersistentPieceBytes(copies, form.weights) / chunk_bytes;
      };
      EXPECT_GE(int8.ring_slots, MinRingSlots(int8));
      EXPECT_GT(chunks(int8, 272), chunks(bf16, 512));
      EXPECT_LE(int8.ring_slots, 32) << "barriers of the ring";
      EXPECT_LE(FrameKernelBytes(int8), shared);
      EXPECT_EQ(PersistentPieceBytes(copies, cuda::WeightForm::kInt8) % 128, 0) << "what lies behind is aligned";
      EXPECT_EQ(ChooseForm(hidden, 2, copies, processors, shared, false, cuda::WeightForm::kInt8).blocks, 0);
    }
  }
}

TEST(FrameDeal, ATestMayAskForAllBlocks) {
  EXPECT_EQ(ChooseForm(kPersistentHidden, 8, RingCopies::kAsync, 128, k163KiB, true).blocks, 128);
}

TEST(FrameDeal, ACardOfFewSmsHasNoForm) {
  EXPECT_EQ(ChooseForm(kPersistentHidden, 1, RingCopies::kAsync, 15, k99KiB).blocks, 0);
  EXPECT_EQ(ChooseForm(kPersistentHidden, 1, RingCopies::kAsync, kPersistentMinBlocks, size_t{48} << 10).blocks, 0);
}

}  // namespace
}  // namespace qtts
