// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_WORD_ACCESS_CUH_
#define QTTS_CUDA_PATHS_PERSISTENT_WORD_ACCESS_CUH_

#include "paths/persistent/frame_kernel.h"

// Memory accesses of words that thread blocks exchange (words.cuh): each is one access, at the level of the device and
// without order among others.
namespace qtts::cuda {

__device__ __forceinline__ void StoreWord(Word* word, Word value) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

// Stores two neighbours, the first at an even index. Each is whole; a reader may see one of them alone.
__device__ __forceinline__ void StoreTwo(Word* words, Word first, Word second) {
  asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(words), "l"(first), "l"(second) : "memory");
}

__device__ __forceinline__ Word FetchWord(const Word* word) {
  Word value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}

__device__ __forceinline__ void FetchTwo(const Word* words, Word* first, Word* second) {
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(*first), "=l"(*second) : "l"(words) : "memory");
}

// Stores sixteen bytes as a whole.
__device__ __forceinline__ void StoreSixteen(void* to, Word first, Word second) {
  asm volatile("{\n.reg .b128 v;\nmov.b128 v, {%1, %2};\nst.relaxed.gpu.global.b128 [%0], v;\n}" ::"l"(to), "l"(first),
               "l"(second)
               : "memory");
}

__device__ __forceinline__ void FetchSixteen(const void* from, Word* first, Word* second) {
  asm volatile("{\n.reg .b128 v;\nld.relaxed.gpu.global.b128 v, [%2];\nmov.b128 {%0, %1}, v;\n}"
               : "=l"(*first), "=l"(*second)
               : "l"(from)
               : "memory");
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_PATHS_PERSISTENT_WORD_ACCESS_CUH_
