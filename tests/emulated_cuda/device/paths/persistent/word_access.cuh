// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_WORD_ACCESS_CUH_
#define QTTS_CUDA_PATHS_PERSISTENT_WORD_ACCESS_CUH_

#include <cstring>

#include "cuda_device.h"
#include "paths/persistent/frame_kernel.h"
#include "thread_grid.h"

// In place of cuda/paths/persistent/word_access.cuh. A thread that fetches the same words again waits for them.
namespace qtts::cuda {

inline void StoreTwo(Word* words, Word first, Word second) {
  words[0] = first;
  words[1] = second;
  emulated::Changed();
}
inline void StoreWord(Word* word, Word value) {
  *word = value;
  emulated::Changed();
}
inline void StoreSixteen(void* to, Word first, Word second) { StoreTwo(static_cast<Word*>(to), first, second); }

inline Word FetchWord(const Word* word, const emulated::Place& place = emulated::Place::current()) {
  emulated::NoteRead(word, place);
  return *word;
}
inline void FetchTwo(const Word* words, Word* first, Word* second,
                     const emulated::Place& place = emulated::Place::current()) {
  emulated::NoteRead(words, place);
  *first = words[0];
  *second = words[1];
}
inline void FetchSixteen(const void* from, Word* first, Word* second,
                         const emulated::Place& place = emulated::Place::current()) {
  FetchTwo(static_cast<const Word*>(from), first, second, place);
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_PATHS_PERSISTENT_WORD_ACCESS_CUH_
