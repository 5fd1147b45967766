// SPDX-License-Identifier: LGPL-2.1-or-later
#include "sequences/kv_pages.h"

#include <utility>

namespace qtts::cuda {

Status KvPages::Grow() {
  QTTS_ASSIGN_OR_RETURN(DeviceMemory block,
                        DeviceMemory::AllocateZeroed(page_bytes_ * static_cast<size_t>(pages_per_block_)));
  for (int i = pages_per_block_ - 1; i >= 0; --i) {
    free_.push_back(block.as<char>() + static_cast<size_t>(i) * page_bytes_);
  }
  blocks_.push_back(std::move(block));
  return Status::Ok();
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
