// SPDX-License-Identifier: LGPL-2.1-or-later
#include "codec/reference_cache.h"

#include <algorithm>
#include <utility>

namespace qtts::cuda {

const void* ReferenceCache::Find(std::span<const int32_t> codes) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return std::ranges::equal(entry.codes, codes); });
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return found->past.data();
}

void* ReferenceCache::Add(std::span<const int32_t> codes) {
  const bool full = entries_.size() >= kMostValues || (!entries_.empty() && bytes() + bytes_ > kMostBytes);
  if (full) {
    entries_.splice(entries_.begin(), entries_, std::prev(entries_.end()));
  } else {
    auto memory = DeviceMemory::Allocate(bytes_);
    if (!memory.ok()) return nullptr;
    entries_.push_front({{}, std::move(*memory)});
  }
  entries_.front().codes.assign(codes.begin(), codes.end());
  return entries_.front().past.data();
}

}  // namespace qtts::cuda
