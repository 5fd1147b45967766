// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_HOST_MEMORY_H_
#define QTTS_CUDA_RUNTIME_HOST_MEMORY_H_

#include <cstddef>
#include <utility>

#include "qtts/status.h"
#include "runtime/device_memory.h"

// The host's memory in large blocks. Owners are movable values that free what they own; none is thread-safe.
namespace qtts::cuda {

// Bytes of the host's memory that are there when Allocate() returns, in huge pages where the system has them. No call
// of CUDA: any thread may make one.
class PresentMemory {
 public:
  PresentMemory() = default;
  ~PresentMemory() { Free(); }
  PresentMemory(PresentMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  PresentMemory& operator=(PresentMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  PresentMemory(const PresentMemory&) = delete;
  PresentMemory& operator=(const PresentMemory&) = delete;

  // At least `bytes`, all zero: whole huge pages of 2 MiB. kResourceExhausted if there is no room.
  static Result<PresentMemory> Allocate(size_t bytes);

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void Free();
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// Page-locked memory for copies from and to the device. The driver's own allocation (PinnedMemory) is made present
// inside one call, some 8 ms for 14 MB, while no kernel can be launched; page-locking what is present takes 0.6 ms.
class LockedMemory {
 public:
  LockedMemory() = default;
  ~LockedMemory() { Unlock(); }
  LockedMemory(LockedMemory&& other) noexcept : memory_(std::move(other.memory_)), pinned_(std::move(other.pinned_)) {}
  LockedMemory& operator=(LockedMemory&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(pinned_, other.pinned_);
    return *this;
  }
  LockedMemory(const LockedMemory&) = delete;
  LockedMemory& operator=(const LockedMemory&) = delete;

  // If it can't be locked, takes as much of the driver's.
  static Result<LockedMemory> Lock(PresentMemory memory);

  void* data() const { return pinned_.data() != nullptr ? pinned_.data() : memory_.data(); }

 private:
  void Unlock();
  PresentMemory memory_;  // locked, if there is any
  PinnedMemory pinned_;   // the driver's
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_HOST_MEMORY_H_
