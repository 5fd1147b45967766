// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/kv_cache.h"

#include <algorithm>
#include <utility>

namespace qtts::cpu {
namespace {

// Positions of a page: about 5 s of speech. Small enough that a short utterance of a small model wastes little.
constexpr int64_t kPagePositions = 64;

}  // namespace

KvCache::KvCache(const TransformerConfig& config)
    : heads_(config.num_kv_heads),
      head_dim_(config.head_dim),
      page_positions_(std::min<int64_t>(kPagePositions, config.max_positions)),
      page_rows_(int64_t{2} * config.num_layers * heads_),
      window_(config.sliding_window) {}

KvCache::KvCache(const KvCache& other, int64_t length)
    : heads_(other.heads_),
      head_dim_(other.head_dim_),
      page_positions_(other.page_positions_),
      page_rows_(other.page_rows_),
      window_(other.window_),
      first_page_(other.first_page_),
      length_(length) {
  // Copies only the rows in use. The rest of a page then takes no physical memory.
  for (int64_t begin = first_page_ * page_positions_; begin < length; begin += page_positions_) {
    const float* from = other.pages_[pages_.size()].get();
    float* to = pages_.emplace_back(NewPage()).get();
    for (int64_t i = 0; i < page_rows_; ++i, from += ValueOffset(), to += ValueOffset()) {
      std::copy_n(from, std::min(page_positions_, length - begin) * head_dim_, to);
    }
  }
}

KvCache KvCache::Copy(int64_t length) const { return {*this, length}; }

int64_t KvCache::FirstVisible(int64_t position) const {
  return window_ == 0 ? 0 : std::max<int64_t>(0, position - window_ + 1);
}

float* KvCache::Row(int layer, int head, int64_t position) const {
  const auto page = static_cast<size_t>(position / page_positions_ - first_page_);
  const int64_t place = 2 * (layer * heads_ + head) * page_positions_ + position % page_positions_;
  return pages_[page].get() + place * head_dim_;
}

std::unique_ptr<float[]> KvCache::NewPage() const {
  return std::make_unique_for_overwrite<float[]>(static_cast<size_t>(page_positions_ * page_rows_ * head_dim_));
}

void KvCache::Extend(int64_t count) {
  const int64_t needed = (length_ + count + page_positions_ - 1) / page_positions_;
  while (first_page_ + static_cast<int64_t>(pages_.size()) < needed) {
    if (spare_.empty()) {
      pages_.push_back(NewPage());
    } else {
      pages_.push_back(std::move(spare_.back()));
      spare_.pop_back();
    }
  }
  const int64_t unseen = std::max<int64_t>(0, FirstVisible(length_) / page_positions_ - first_page_);
  for (int64_t i = 0; i < unseen; ++i) spare_.push_back(std::move(pages_[static_cast<size_t>(i)]));
  pages_.erase(pages_.begin(), pages_.begin() + unseen);
  first_page_ += unseen;
  length_ += count;
}

void KvCache::Clear() {
  for (auto& page : pages_) spare_.push_back(std::move(page));
  pages_.clear();
  first_page_ = 0;
  length_ = 0;
}

void KvCache::Visible(int layer, int head, int64_t position, std::vector<KeyValueSpan>* spans) const {
  spans->clear();
  for (int64_t p = FirstVisible(position); p <= position;) {
    const int64_t count = std::min(page_positions_ - p % page_positions_, position + 1 - p);
    const float* const keys = Row(layer, head, p);
    spans->push_back({keys, keys + ValueOffset(), count});
    p += count;
  }
}

}  // namespace qtts::cpu
