// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/word_cache.h"

#include <algorithm>
#include <functional>

namespace qtts {

WordCache::WordCache() : entries_(kPlaces) {}

WordCache::Entry& WordCache::PlaceOf(std::string_view word) {
  return entries_[std::hash<std::string_view>()(word) % kPlaces];
}

bool WordCache::Append(std::string_view word, std::vector<int32_t>* ids) {
  const MutexLock lock(mutex_);
  const Entry& entry = PlaceOf(word);
  if (entry.size == 0 || word != std::string_view(entry.word.data(), entry.size)) return false;
  ids->insert(ids->end(), entry.ids.begin(), entry.ids.begin() + entry.count);
  return true;
}

void WordCache::Keep(std::string_view word, std::span<const int32_t> ids) {
  if (word.empty() || word.size() > Entry().word.size() || ids.size() > Entry().ids.size()) return;
  const MutexLock lock(mutex_);
  Entry& entry = PlaceOf(word);
  entry.size = static_cast<uint8_t>(word.size());
  entry.count = static_cast<uint8_t>(ids.size());
  std::copy(word.begin(), word.end(), entry.word.begin());
  std::copy(ids.begin(), ids.end(), entry.ids.begin());
}

}  // namespace qtts
