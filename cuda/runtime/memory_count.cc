// SPDX-License-Identifier: LGPL-2.1-or-later
#include "runtime/memory_count.h"

#include <algorithm>

namespace qtts::cuda {
namespace {

constexpr size_t kAddressStep = 256;

thread_local MemoryCount* current = nullptr;

}  // namespace

MemoryCount::MemoryCount() { current = this; }
MemoryCount::~MemoryCount() { current = nullptr; }

MemoryCount* MemoryCount::Current() { return current; }

void* MemoryCount::Take(size_t bytes) {
  held_ += bytes;
  max_held_ = std::max(max_held_, held_);
  next_address_ += kAddressStep;
  void* const address = reinterpret_cast<void*>(next_address_);  // NOLINT(performance-no-int-to-ptr)
  next_address_ += (bytes + kAddressStep - 1) / kAddressStep * kAddressStep;
  return address;
}

}  // namespace qtts::cuda
