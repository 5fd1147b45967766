// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_KV_CACHE_H_
#define QTTS_CPU_KV_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "checkpoint/config.h"
#include "cpu/kernels.h"

namespace qtts::cpu {

// Keys (after norm and RoPE) and values of one sequence in one transformer, all layers, in F32. Grows by pages, in
// which the positions of a head are adjacent: attention reads them from memory in one stream. With a sliding window,
// pages that no later position can see are recycled.
//
// Owned by its sequence. Not thread-safe.
class KvCache {
 public:
  explicit KvCache(const TransformerConfig& config);

  // Returns the number of positions stored so far.
  int64_t length() const { return length_; }

  // Appends `count` positions, whose keys and values the caller then writes. Recycles pages that none of the new
  // positions can see. May throw std::bad_alloc; the cache is then unchanged.
  void Extend(int64_t count);

  // Removes all positions and keeps the memory.
  void Clear();

  // Copies the first `length` positions, without recycled ones. May throw std::bad_alloc.
  KvCache Copy(int64_t length) const;
  // Returns true if no position was recycled.
  bool complete() const { return first_page_ == 0; }
  // Returns the bytes of the keys and values it holds.
  size_t bytes() const {
    return static_cast<size_t>((length_ - first_page_ * page_positions_) * page_rows_ * head_dim_) * sizeof(float);
  }

  // Returns the [head_dim] values of one stored position and KV head.
  float* Key(int layer, int head, int64_t position) { return Row(layer, head, position); }
  float* Value(int layer, int head, int64_t position) { return Row(layer, head, position) + ValueOffset(); }

  // Sets `spans` to those of the positions visible to `position`, itself included, for one KV head, in order. Rows are
  // head_dim floats apart.
  void Visible(int layer, int head, int64_t position, std::vector<KeyValueSpan>* spans) const;

 private:
  // Returns the first position visible to `position`.
  int64_t FirstVisible(int64_t position) const;
  int64_t ValueOffset() const { return page_positions_ * head_dim_; }
  float* Row(int layer, int head, int64_t position) const;

  std::unique_ptr<float[]> NewPage() const;

  // Implements Copy().
  KvCache(const KvCache& other, int64_t length);

  int64_t heads_;  // of keys and values
  int64_t head_dim_;
  int64_t page_positions_;
  int64_t page_rows_;                            // rows of a position: keys and values of all heads and layers
  int64_t window_;                               // 0: none
  std::vector<std::unique_ptr<float[]>> pages_;  // [layer][head][keys, values][position in page][head_dim]
  std::vector<std::unique_ptr<float[]>> spare_;
  int64_t first_page_ = 0;  // number of the page at the front
  int64_t length_ = 0;
};

}  // namespace qtts::cpu

#endif  // QTTS_CPU_KV_CACHE_H_
