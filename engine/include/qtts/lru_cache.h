// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_LRU_CACHE_H_
#define QTTS_LRU_CACHE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <utility>

namespace qtts {

// A cache bounded in number of values and in bytes. Evicts the least recently used values. Find() is linear: for some
// dozens of values. Not thread-safe.
template <typename Value>
class LruCache {
 public:
  explicit LruCache(size_t max_values, size_t max_bytes = SIZE_MAX) : max_values_(max_values), max_bytes_(max_bytes) {}

  // Returns null if there is none. Valid until the next Insert().
  const Value* Find(std::string_view key) {
    const auto found =
        std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.key == key; });
    if (found == entries_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found);
    return &found->value;
  }

  // Inserts a value. `key` must not be in the cache. A value of more than `max_bytes` is not kept.
  void Insert(std::string key, Value value, size_t bytes = 0) {
    if (bytes > max_bytes_) return;
    entries_.push_front({std::move(key), std::move(value), bytes});
    bytes_ += bytes;
    while (entries_.size() > max_values_ || bytes_ > max_bytes_) TakeOldest();
  }

  // Removes the least recently used value, for what it owns. There must be one.
  Value TakeOldest() {
    Value value = std::move(entries_.back().value);
    bytes_ -= entries_.back().bytes;
    entries_.pop_back();
    return value;
  }

  size_t size() const { return entries_.size(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Entry {
    std::string key;
    Value value;
    size_t bytes = 0;
  };

  size_t max_values_;
  size_t max_bytes_;
  size_t bytes_ = 0;
  std::list<Entry> entries_;  // most recently used first
};

}  // namespace qtts

#endif  // QTTS_LRU_CACHE_H_
