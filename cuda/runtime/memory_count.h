// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_MEMORY_COUNT_H_
#define QTTS_CUDA_RUNTIME_MEMORY_COUNT_H_

#include <cstddef>

namespace qtts::cuda {

// Counts the device memory of a load instead of allocating it. While one exists, the owners of memory, streams and
// events (device_memory.h, arena.h) take nothing from the device in its thread, and launches, copies and waits are left
// out: the load that runs meanwhile has all its sizes and no data. Its objects can't be used, and must be destroyed
// before the count. One at a time in a thread.
class MemoryCount {
 public:
  MemoryCount();
  ~MemoryCount();
  MemoryCount(const MemoryCount&) = delete;
  MemoryCount& operator=(const MemoryCount&) = delete;

  // Returns the count of this thread, or null.
  static MemoryCount* Current();

  // Returns an address that nobody may read or write: not null, aligned to 256 bytes, never the same.
  void* Take(size_t bytes);
  void GiveBack(size_t bytes) { held_ -= bytes; }

  size_t held() const { return held_; }
  size_t max_held() const { return max_held_; }  // at any time so far

 private:
  size_t held_ = 0;
  size_t max_held_ = 0;
  size_t next_address_ = 0;
};

// Returns true while this thread counts.
inline bool CountsMemory() { return MemoryCount::Current() != nullptr; }

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_MEMORY_COUNT_H_
