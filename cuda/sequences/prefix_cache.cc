// SPDX-License-Identifier: LGPL-2.1-or-later
#include "sequences/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "attention/attention.h"
#include "frame/frame.h"

namespace qtts::cuda {

PrefixCache::PrefixCache(const TransformerConfig& config, size_t element_bytes, KvPages* pages,
                         const DeviceNumbers* numbers, cudaStream_t stream)
    : heads_(static_cast<int64_t>(config.num_layers) * config.num_kv_heads),
      row_bytes_(static_cast<int64_t>(config.head_dim) * static_cast<int64_t>(element_bytes)),
      pages_(pages),
      numbers_(numbers),
      stream_(stream) {}

bool PrefixCache::Copy(std::span<void* const> from, std::span<void* const> to, int positions) const {
  const Launcher launch(stream_, numbers_);
  for (size_t page = 0; positions > 0; ++page, positions -= kPagePositions) {
    CopyPage(launch, from[page], to[page], heads_, std::min(kPagePositions, positions), kPagePositions, row_bytes_);
  }
  return Succeeds(launch.error);
}

void PrefixCache::GiveBack(const std::vector<void*>& pages) {
  for (void* const page : pages) pages_->GiveBack(page);
}

bool PrefixCache::Use(const std::string& key, std::span<void* const> slot_pages) {
  const Prefix* const found = prefixes_.Find(key);
  return found != nullptr && Copy(found->pages, slot_pages, found->positions);
}

void PrefixCache::EvictOldest() {
  const Prefix oldest = prefixes_.TakeOldest();
  held_pages_ -= oldest.pages.size();
  GiveBack(oldest.pages);
}

bool PrefixCache::Evict() {
  if (prefixes_.size() == 0) return false;
  EvictOldest();
  return true;
}

void PrefixCache::Keep(const std::string& key, std::span<void* const> slot_pages, int positions) {
  if (prefixes_.Find(key) != nullptr) return;
  if (prefixes_.size() == kMostPrefixes) EvictOldest();
  Prefix prefix;
  prefix.positions = positions;
  for (int begin = 0; begin < positions; begin += kPagePositions) {
    Result<void*> page = pages_->Take();
    if (!page.ok()) return GiveBack(prefix.pages);
    prefix.pages.push_back(*page);
  }
  if (!Copy(slot_pages, prefix.pages, positions)) return GiveBack(prefix.pages);
  held_pages_ += prefix.pages.size();
  prefixes_.Insert(key, std::move(prefix));
}

}  // namespace qtts::cuda
