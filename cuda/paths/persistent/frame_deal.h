// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_FRAME_DEAL_H_
#define QTTS_CUDA_PATHS_PERSISTENT_FRAME_DEAL_H_

#include "paths/persistent/frame_kernel.h"

// How the persistent kernel's attention is dealt out to thread blocks. constexpr: tests run it on the host.
namespace qtts::cuda::persistent {

// A pass's attention. A part is one head and one sequence, with every Stride()-th split; a block has Parts() of them.
// All members are powers of two, so no block has more than another.
struct AttentionDeal {
  int heads;  // kPersistentHeads, or kPersistentKvHeads while their query heads share a part
  int sequences;
  int blocks;

  constexpr int Parts() const { return heads * sequences > blocks ? heads * sequences / blocks : 1; }
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
  return PersistentItems(rows, folded ? kPersistentMinBlocks : kPersistentMaxBlocks);
}

}  // namespace qtts::cuda::persistent

#endif  // QTTS_CUDA_PATHS_PERSISTENT_FRAME_DEAL_H_
