// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_FRAME_DEAL_H_
#define QTTS_CUDA_PATHS_PERSISTENT_FRAME_DEAL_H_

#include "paths/persistent/frame_kernel.h"

// How the persistent kernel's tiles and its attention are dealt out to thread blocks. constexpr: tests run it on the
// host.
namespace qtts::cuda::persistent {

// Returns how many of `count` things block `rank` has, if they are dealt to the blocks in turn.
constexpr int DealtTo(int rank, int count, int blocks) {
  return rank < count ? (count - rank + blocks - 1) / blocks : 0;
}

// A block's tiles of a product: `first`, and then every blocks-th, `count` in all.
struct TileDeal {
  int first;
  int count;
};

// A block's tiles of a layer's products, each dealt in turn from another block on: a block with a tile more of one
// product should have none more of another. Those of the residual stream weigh most and begin with the first block;
// queries, keys and values go on where they end; gate and up end with the last block. The ring of weights evens out the
// rest: a block copies the next product's tiles while it waits.
struct LayerDeal {
  TileDeal own;  // of both products that add to the residual stream: a block has the same columns in both
  TileDeal qkv, gated;
};

inline constexpr int kQkvTiles = (kPersistentHeads + 2 * kPersistentKvHeads) * kPersistentHeadDim / 16;
constexpr int OwnTiles(int hidden) { return hidden / 8; }
constexpr int GatedTiles(int hidden) { return PersistentIntermediate(hidden) / 8; }

// Returns the deal of `tiles` tiles, of which block `begin` has the first.
constexpr TileDeal DealTiles(int begin, int tiles, int block, int blocks) {
  const int rank = (block - begin % blocks + blocks) % blocks;
  return {rank, DealtTo(rank, tiles, blocks)};
}
constexpr LayerDeal DealLayer(int hidden, int block, int blocks) {
  const int own = OwnTiles(hidden);
  const int gated = GatedTiles(hidden);
  return {DealTiles(0, own, block, blocks), DealTiles(own, kQkvTiles, block, blocks),
          DealTiles(blocks - gated % blocks, gated, block, blocks)};
}

// Returns the weights of a layer that the block with the most of them has.
constexpr int MaxWeights(int hidden, int blocks) {
  int most = 0;
  for (int block = 0; block < blocks; ++block) {
    const LayerDeal deal = DealLayer(hidden, block, blocks);
    const int own = 8 * (kPersistentHeads * kPersistentHeadDim + PersistentIntermediate(hidden));
    const int weights = deal.own.count * own + (deal.qkv.count + deal.gated.count) * 16 * hidden;
    most = weights > most ? weights : most;
  }
  return most;
}

// Returns the blocks for so many SMs; 0: too few. The fewest of those numbers with which the most loaded block has
// least: other SMs are left to the codec.
constexpr int ChooseBlocks(int processors) {
  int best = 0;
  for (int blocks = kPersistentMinBlocks; blocks <= processors && blocks <= kPersistentMaxBlocks; ++blocks) {
    if (best == 0 || MaxWeights(kPersistentHidden, blocks) < MaxWeights(kPersistentHidden, best)) best = blocks;
  }
  return best;
}

// Returns the SMs that a card whose SMs have no room beside the kernel leaves to the codec of the frame before. Sound
// of four streams and more takes about as long as the next codes of the narrow talker, so both at once take less time
// in all; a wide talker's codes lose more by it than the codec gains. By calculation fewer SMs than kLeastForCodec
// would take longer than both in turn.
constexpr int ProcessorsForCodec(int talker_hidden, int rows, int processors) {
  constexpr int kLeastForCodec = 16;
  const int left = processors / 6;
  return talker_hidden == kPersistentHidden && rows >= 4 && left >= kLeastForCodec ? left : 0;
}

// A pass's attention. A part is one head and one sequence, with every Stride()-th split; a block has at most Parts() of
// them. With a power of two of blocks all have as many.
struct AttentionDeal {
  int heads;  // kPersistentHeads, or kPersistentKvHeads while their query heads share a part
  int sequences;
  int blocks;

  constexpr int Parts() const { return (heads * sequences + blocks - 1) / blocks; }
  constexpr int PartsOf(int block) const { return DealtTo(block, heads * sequences * Stride(), blocks); }
  constexpr int Stride() const { return heads * sequences < blocks ? blocks / heads / sequences : 1; }
  // Functions of a part's number, a block's own and then every blocks-th: head, sequence, first split:
  constexpr int Head(int number) const { return number % heads; }
  constexpr int Sequence(int number) const { return number / heads % sequences; }
  constexpr int FirstSplit(int number) const { return number / heads / sequences; }
};

// Returns whether all query heads of a key head share a part, which reads keys and values once. While there is a block
// for each query head and split, parts of their own take less time.
constexpr bool SharesKeys(int splits, int sequences, int blocks) {
  return splits * sequences * kPersistentHeads > blocks;
}

// Returns the parts of a block at most, and all its splits.
constexpr int MaxParts(int rows, bool folded) { return folded ? rows : 1; }
constexpr int MaxItems(int rows, bool folded) {
  return PersistentItems(rows) * (folded ? kPersistentMaxBlocks / kPersistentMinBlocks : 1);
}

}  // namespace qtts::cuda::persistent

#endif  // QTTS_CUDA_PATHS_PERSISTENT_FRAME_DEAL_H_
