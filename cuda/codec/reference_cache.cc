// SPDX-License-Identifier: LGPL-2.1-or-later
#include "codec/reference_cache.h"

#include <string>
#include <utility>

#include "prompt/prompt_prefix.h"

namespace qtts::cuda {

const void* ReferenceCache::Find(std::span<const int32_t> codes) {
  const DeviceMemory* const found = pasts_.Find(ReferenceKey(codes));
  return found == nullptr ? nullptr : found->data();
}

void* ReferenceCache::Add(std::span<const int32_t> codes) {
  std::string key = ReferenceKey(codes);
  const bool full = pasts_.size() == kMaxValues || (pasts_.size() > 0 && bytes() + bytes_ > kMaxBytes);
  auto memory = full ? Result<DeviceMemory>(pasts_.TakeOldest()) : DeviceMemory::Allocate(bytes_);
  if (!memory.ok()) return nullptr;
  void* const past = memory->data();
  pasts_.Insert(std::move(key), *std::move(memory));
  return past;
}

}  // namespace qtts::cuda
