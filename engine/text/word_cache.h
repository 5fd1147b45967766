// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_WORD_CACHE_H_
#define QTTS_TEXT_WORD_CACHE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "qtts/mutex.h"

namespace qtts {

// Ids of the pre-tokens met last, since most words of a text were in one before. It is there for the first text after
// a rest, when everything is out of the processor's caches: a word costs one line of memory here, and dozens in the
// tables of the vocabulary.
//
// Each word has one place, and whatever else belongs there takes it: the size is fixed, and there is nothing to tidy.
//
// Owned by the tokenizer. Thread-safe.
class WordCache {
 public:
  WordCache();
  WordCache(const WordCache&) = delete;
  WordCache& operator=(const WordCache&) = delete;

  // Appends the ids of `word`, if they are there.
  bool Append(std::string_view word, std::vector<int32_t>* ids);
  // Keeps them, unless the word is too long or has too many.
  void Keep(std::string_view word, std::span<const int32_t> ids);

 private:
  static constexpr size_t kLine = 64;  // bytes of a cache line
  static constexpr size_t kPlaces = 4096;

  struct alignas(kLine) Entry {
    uint8_t size = 0;  // 0: free
    uint8_t count = 0;
    std::array<char, 30> word{};
    std::array<int32_t, 8> ids{};
  };
  static_assert(sizeof(Entry) == kLine);

  Entry& PlaceOf(std::string_view word) QTTS_REQUIRES(mutex_);

  Mutex mutex_;
  std::vector<Entry> entries_ QTTS_GUARDED_BY(mutex_);
};

}  // namespace qtts

#endif  // QTTS_TEXT_WORD_CACHE_H_
