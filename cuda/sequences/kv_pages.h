// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_SEQUENCES_KV_PAGES_H_
#define QTTS_CUDA_SEQUENCES_KV_PAGES_H_

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include "qtts/status.h"
#include "runtime/device_memory.h"

namespace qtts::cuda {

// Pages of key-value memory, all of one size, taken and given back by slots. Memory comes from the device
// in blocks of several pages and stays. Not thread-safe.
//
// A freed page may be reused at once, since all work on pages is enqueued on one stream.
class KvPages {
 public:
  KvPages() = default;
  // `stream`: all work on pages is enqueued there.
  KvPages(size_t page_bytes, int pages_per_block, cudaStream_t stream)
      : page_bytes_(page_bytes), pages_per_block_(pages_per_block), stream_(stream) {}

  // Ensures that `pages` pages can be taken without allocating device memory.
  Status Reserve(size_t pages);
  // Finds out how many pages the device's free memory holds beside `keep_free` bytes, which others will allocate. Until
  // the first call only allocated pages are counted.
  Status Measure(size_t keep_free);
  bool measured() const { return measured_; }
  // Updates `keep_free`: bytes that others still have to allocate.
  void KeepFree(size_t bytes) { keep_free_ = bytes; }
  // Returns a page, zeroed when new. kResourceExhausted when the device has no more memory.
  Result<void*> Take();
  void GiveBack(void* page) { free_.push_back(page); }

  size_t page_bytes() const { return page_bytes_; }
  size_t device_bytes() const { return blocks_.size() * static_cast<size_t>(pages_per_block_) * page_bytes_; }
  size_t free_pages() const { return free_.size(); }
  // Returns the pages that can be taken, as far as is known: other programs allocate too. Looks again, at most once a
  // second, while the device has no memory for more.
  size_t available_pages();
  // Returns all pages, taken and available.
  size_t total_pages() const { return blocks_.size() * static_cast<size_t>(pages_per_block_) + unallocated_; }

 private:
  Status Grow();
  Status Measure();

  size_t page_bytes_ = 0;
  int pages_per_block_ = 1;
  cudaStream_t stream_ = nullptr;
  std::vector<DeviceMemory> blocks_;
  std::vector<void*> free_;
  size_t keep_free_ = 0;
  size_t unallocated_ = 0;  // pages that the device had memory for when it was last asked
  bool measured_ = false;
  std::optional<std::chrono::steady_clock::time_point> look_again_;  // after a lack of memory
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_SEQUENCES_KV_PAGES_H_
