// SPDX-License-Identifier: LGPL-2.1-or-later
#include "sequences/prefix_cache.h"

#include <algorithm>
#include <array>
#include <utility>

#include "attention/attention.h"
#include "frame/frame.h"

namespace qtts::cuda {

PrefixCache::PrefixCache(const TransformerConfig& config, size_t element_bytes, KvPages* pages, cudaStream_t stream)
    : heads_(static_cast<int64_t>(config.num_layers) * config.num_kv_heads),
      row_bytes_(static_cast<int64_t>(config.head_dim) * static_cast<int64_t>(element_bytes)),
      pages_(pages),
      stream_(stream) {}

std::string PrefixCache::Key(const Prompt& prompt, int rows) {
  std::string key;
  const auto append = [&](const void* data, size_t bytes) { key.append(static_cast<const char*>(data), bytes); };
  bool vector = false;
  for (int i = 0; i < rows; ++i) {
    const PromptRow& row = prompt.rows[static_cast<size_t>(i)];
    const std::array<int32_t, 3> head = {row.text_id, row.x_vector ? 1 : 0, static_cast<int32_t>(row.codes.size())};
    append(head.data(), sizeof(head));
    append(row.codes.data(), row.codes.size() * sizeof(int32_t));
    vector = vector || row.x_vector;
  }
  if (vector) append(prompt.x_vector.data(), prompt.x_vector.size() * sizeof(float));
  return key;
}

bool PrefixCache::Copy(std::span<void* const> from, std::span<void* const> to, int positions) const {
  const Launcher launch{stream_, false};
  for (size_t page = 0; positions > 0; ++page, positions -= kPagePositions) {
    CopyPage(launch, from[page], to[page], heads_, std::min(kPagePositions, positions), kPagePositions, row_bytes_);
  }
  return Succeeds(launch.error);
}

void PrefixCache::GiveBack(const std::vector<void*>& pages) {
  for (void* const page : pages) pages_->GiveBack(page);
}

bool PrefixCache::Use(const std::string& key, std::span<void* const> slot_pages) {
  const auto found = prefixes_.find(key);
  if (found == prefixes_.end()) return false;
  found->second.last_use = ++uses_;
  return Copy(found->second.pages, slot_pages, found->second.positions);
}

void PrefixCache::Keep(const std::string& key, std::span<void* const> slot_pages, int positions) {
  if (prefixes_.contains(key)) return;
  if (prefixes_.size() >= kMostPrefixes) {
    const auto oldest = std::min_element(prefixes_.begin(), prefixes_.end(), [](const auto& a, const auto& b) {
      return a.second.last_use < b.second.last_use;
    });
    GiveBack(oldest->second.pages);
    prefixes_.erase(oldest);
  }
  Prefix prefix;
  prefix.positions = positions;
  prefix.last_use = ++uses_;
  for (int begin = 0; begin < positions; begin += kPagePositions) {
    Result<void*> page = pages_->Take();
    if (!page.ok()) return GiveBack(prefix.pages);
    prefix.pages.push_back(*page);
  }
  if (!Copy(slot_pages, prefix.pages, positions)) return GiveBack(prefix.pages);
  prefixes_.emplace(key, std::move(prefix));
}

}  // namespace qtts::cuda
