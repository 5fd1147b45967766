// SPDX-License-Identifier: LGPL-2.1-or-later
#include "sequences/kv_pages.h"

#include <utility>

#include "runtime/device.h"

namespace qtts::cuda {

namespace {

constexpr std::chrono::seconds kLookAgain{1};

}  // namespace

Status KvPages::Grow() {
  Result<DeviceMemory> allocated =
      DeviceMemory::AllocateZeroed(page_bytes_ * static_cast<size_t>(pages_per_block_), stream_);
  if (!allocated.ok()) {
    unallocated_ = 0;
    look_again_ = std::chrono::steady_clock::now() + kLookAgain;
    return allocated.status();
  }
  DeviceMemory block = *std::move(allocated);
  for (int i = pages_per_block_ - 1; i >= 0; --i) {
    free_.push_back(block.as<char>() + static_cast<size_t>(i) * page_bytes_);
  }
  blocks_.push_back(std::move(block));
  return measured_ ? Measure() : Status::Ok();
}

Status KvPages::Measure(size_t keep_free) {
  keep_free_ = keep_free;
  measured_ = true;
  return Measure();
}

Status KvPages::Measure() {
  size_t free = 0;
  size_t total = 0;
  QTTS_RETURN_IF_CUDA_ERROR(MeasureMemory(&free, &total), "asking for free memory");
  const size_t block_bytes = page_bytes_ * static_cast<size_t>(pages_per_block_);
  const size_t blocks = free > keep_free_ ? (free - keep_free_) / block_bytes : 0;
  unallocated_ = blocks * static_cast<size_t>(pages_per_block_);
  // Other programs may free some.
  look_again_.reset();
  if (unallocated_ == 0) look_again_ = std::chrono::steady_clock::now() + kLookAgain;
  return Status::Ok();
}

size_t KvPages::available_pages() {
  // A lost device is found by the calls that compute.
  if (look_again_ && std::chrono::steady_clock::now() >= *look_again_) (void)Measure();
  return free_.size() + unallocated_;
}

Status KvPages::Reserve(size_t pages) {
  while (free_.size() < pages) QTTS_RETURN_IF_ERROR(Grow());
  return Status::Ok();
}

Result<void*> KvPages::Take() {
  QTTS_RETURN_IF_ERROR(Reserve(1));
  void* const page = free_.back();
  free_.pop_back();
  return page;
}

}  // namespace qtts::cuda
