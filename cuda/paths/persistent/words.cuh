// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_WORDS_CUH_
#define QTTS_CUDA_PATHS_PERSISTENT_WORDS_CUH_

#include <cstdint>

#include "paths/persistent/frame_kernel.h"
#include "paths/persistent/word_access.cuh"

// Data exchange between thread blocks of the persistent kernel: words of eight bytes, half payload, half the epoch in
// which it was written. A reader polls the word until it has the expected epoch, so an exchange takes one round trip
// through L2: no barrier and nothing to clear. The eight bytes are one memory access, so no ordering with other memory
// is needed, and none is provided.
namespace qtts::cuda {

__device__ __forceinline__ void Publish(Word* word, uint32_t payload, uint32_t epoch) {
  StoreWord(word, static_cast<Word>(epoch) << 32 | payload);
}

// Publishes two neighbours, the first at an even index.
__device__ __forceinline__ void PublishTwo(Word* words, uint32_t first, uint32_t second, uint32_t epoch) {
  StoreTwo(words, static_cast<Word>(epoch) << 32 | first, static_cast<Word>(epoch) << 32 | second);
}

__device__ __forceinline__ uint2 LoadWord(const Word* word) {
  const Word value = FetchWord(word);
  return {static_cast<uint32_t>(value), static_cast<uint32_t>(value >> 32)};
}

// Loads two neighbours, the first at an even index: {payload, epoch, payload, epoch}.
__device__ __forceinline__ uint4 LoadTwoWords(const Word* words) {
  Word a, b;
  FetchTwo(words, &a, &b);
  return {static_cast<uint32_t>(a), static_cast<uint32_t>(a >> 32), static_cast<uint32_t>(b),
          static_cast<uint32_t>(b >> 32)};
}

// Four neighbouring columns of the residual stream, as the next product wants them: times its norm's weights, in BF16,
// and the sum of their squares as they were before. Sixteen bytes, again one access.
struct Quad {
  uint32_t low, high;  // pairs of BF16
  uint32_t squares;    // F32
  uint32_t epoch;
};

__device__ __forceinline__ void Publish(Quad* quad, const Quad& value) {
  StoreSixteen(quad, static_cast<Word>(value.high) << 32 | value.low,
               static_cast<Word>(value.epoch) << 32 | value.squares);
}

__device__ __forceinline__ Quad LoadQuad(const Quad* quad) {
  Word first, second;
  FetchSixteen(quad, &first, &second);
  return {static_cast<uint32_t>(first), static_cast<uint32_t>(first >> 32), static_cast<uint32_t>(second),
          static_cast<uint32_t>(second >> 32)};
}

// Bounds every wait, so that a fault ends in an error and not in a hung device. A thread block that gives up continues
// with the data it has, without further waits, and so terminates.
class Patience {
 public:
  // Counts the polls of a wait. `gave_up` is the block's, in shared memory; `report` is host memory.
  __device__ Patience(unsigned limit, unsigned* gave_up, unsigned* report)
      : limit_(limit), gave_up_(gave_up), report_(report) {}

  // Returns true if the wait should poll again.
  __device__ __forceinline__ bool Lasts(unsigned* looks) const {
    if (*gave_up_ != 0) return false;
    if (++*looks < limit_) return true;
    *gave_up_ = 1;
    *report_ = 1;
    return false;
  }

  // Awaits, by a whole warp, that look() is true in all lanes, which leave together (RingReader).
  template <typename Look>
  __device__ __forceinline__ void Await(const Look& look) const {
    unsigned looks = 0;
    while (__all_sync(~0U, look()) == 0) {
      if (__all_sync(~0U, Lasts(&looks)) == 0) return;
    }
  }

 private:
  unsigned limit_;
  volatile unsigned* gave_up_;
  volatile unsigned* report_;
};

// Finishes loads that were issued before: they are repeated until the words are of the epoch.
__device__ __forceinline__ uint32_t Await(uint2 seen, const Word* word, uint32_t epoch, const Patience& patience) {
  unsigned looks = 0;
  while (seen.y != epoch && patience.Lasts(&looks)) seen = LoadWord(word);
  return seen.x;
}
__device__ __forceinline__ uint2 Await(uint4 seen, const Word* words, uint32_t epoch, const Patience& patience) {
  unsigned looks = 0;
  while ((seen.y != epoch || seen.w != epoch) && patience.Lasts(&looks)) seen = LoadTwoWords(words);
  return {seen.x, seen.z};
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_PATHS_PERSISTENT_WORDS_CUH_
