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

// Caches the ids of recent pre-tokens, since most words of a text occur in earlier texts. It helps the first text after
// a pause, when the vocabulary is not in the CPU's caches: a word costs one cache line here, and dozens in the
// vocabulary's tables.
//
// A direct-mapped cache of fixed size: a word has one place and replaces the word stored there.
//
// Owned by the tokenizer. Thread-safe.
class WordCache {
 public:
  WordCache();
  WordCache(const WordCache&) = delete;
  WordCache& operator=(const WordCache&) = delete;

  // Appends the ids of `word`. Returns false if it is not cached.
  bool Append(std::string_view word, std::vector<int32_t>* ids);
  // Stores the ids of `word`, unless the word or the number of ids is too large.
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
