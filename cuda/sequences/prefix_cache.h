// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_SEQUENCES_PREFIX_CACHE_H_
#define QTTS_CUDA_SEQUENCES_PREFIX_CACHE_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/config.h"
#include "qtts/lru_cache.h"
#include "runtime/device_numbers.h"
#include "sequences/kv_pages.h"

namespace qtts::cuda {

// The talker's keys and values of how prompts begin (Prompt::constant_rows), which depends on the voice, the language
// and the instruction: kept from the first utterance for the others.
//
// Bounded: evicts the least recently used. Its pages come from the talker's pool, and slots that need them come first.
// All work goes to one stream. Not thread-safe.
class PrefixCache {
 public:
  static constexpr size_t kMostPrefixes = 8;
  static constexpr int kMostRows = 1024;

  // `config` is the talker's, `element_bytes` of a key's number; all pointers outlive the cache.
  PrefixCache(const TransformerConfig& config, size_t element_bytes, KvPages* pages, const DeviceNumbers* numbers,
              cudaStream_t stream);

  // Copies the cached rows of `key`, a PrefixKey(), to the pages of a slot, which must be allocated. Returns false if
  // there are none or the copy fails.
  bool Use(const std::string& key, std::span<void* const> slot_pages);
  // Gives the pages of the least recently used prefix back. Returns false if there is none.
  bool Evict();
  // Returns the pages that Evict() would give back in the end.
  size_t held_pages() const { return held_pages_; }
  // Caches `positions` from the pages of a slot. Best effort: without memory nothing is cached.
  void Keep(const std::string& key, std::span<void* const> slot_pages, int positions);

 private:
  struct Prefix {
    std::vector<void*> pages;
    int positions = 0;
  };

  // Copies the first `positions` of pages to others. False if that fails.
  bool Copy(std::span<void* const> from, std::span<void* const> to, int positions) const;
  void GiveBack(const std::vector<void*>& pages);
  void EvictOldest();

  int64_t heads_;      // of all layers
  int64_t row_bytes_;  // of one position's key, or value
  KvPages* pages_;
  const DeviceNumbers* numbers_;
  cudaStream_t stream_;
  size_t held_pages_ = 0;
  LruCache<Prefix> prefixes_{kMostPrefixes};
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_SEQUENCES_PREFIX_CACHE_H_
