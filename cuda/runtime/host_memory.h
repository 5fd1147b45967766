// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_HOST_MEMORY_H_
#define QTTS_CUDA_RUNTIME_HOST_MEMORY_H_

#include <cstddef>
#include <memory>

#include "qtts/status.h"
#include "runtime/device_memory.h"

// The host's memory in large blocks. Owners are movable values that free what they own; none is thread-safe.
namespace qtts::cuda {

// For the owners below.
struct UnmapMemory {
  size_t bytes = 0;
  void operator()(void* data) const;
};

// Bytes of the host's memory that are there when Allocate() returns, in huge pages where the system has them. No call
// of CUDA: any thread may make one.
class PresentMemory {
 public:
  // Allocates at least `bytes`, all zero: whole pages. kResourceExhausted if there is no room.
  static Result<PresentMemory> Allocate(size_t bytes);

  void* data() const { return memory_.get(); }
  size_t bytes() const { return memory_.get_deleter().bytes; }
  // Gives up the ownership: the memory stays until the process ends.
  void Leave();

 private:
  std::unique_ptr<void, UnmapMemory> memory_;
};

// For the owner below.
struct UnlockMemory {
  PresentMemory memory;  // goes when it is unlocked
  void operator()(void* data);
};

// Page-locked memory for copies from and to the device. The driver's own allocation (PinnedMemory) is made present
// inside one call, some 8 ms for 14 MB, while no kernel can be launched; page-locking what is present takes 0.6 ms.
class LockedMemory {
 public:
  // Locks it. If that fails, takes as much of the driver's.
  static Result<LockedMemory> Lock(PresentMemory memory);

  void* data() const { return locked_ != nullptr ? locked_.get() : pinned_.data(); }

 private:
  std::unique_ptr<void, UnlockMemory> locked_;
  PinnedMemory pinned_;  // if there is none
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_HOST_MEMORY_H_
