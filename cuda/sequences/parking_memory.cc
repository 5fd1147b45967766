// SPDX-License-Identifier: LGPL-2.1-or-later
#include "sequences/parking_memory.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "qtts/resources.h"

namespace qtts::cuda {
namespace {

constexpr const char* kPurpose = "park utterances";

// Kept ready: a second's needs of 900 utterances that all take another page of 14 MB each ten seconds are 1.3 GB, and a
// thread makes 4 GB a second.
constexpr size_t kReadyBytes = size_t{512} << 20;

// After a lack of memory.
constexpr std::chrono::seconds kTryAgain{1};

}  // namespace

ParkingMemory::ParkingMemory(size_t block_bytes, size_t limit)
    : block_bytes_(block_bytes), limit_(limit), ready_blocks_(std::clamp<size_t>(kReadyBytes / block_bytes, 1, 64)) {
  ready_.reserve(ready_blocks_);
}

ParkingMemory::~ParkingMemory() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void ParkingMemory::Start() {
  if (thread_.joinable()) return;
  Result<std::thread> thread = StartThread(kPurpose, [this] { Run(); });
  if (thread.ok()) thread_ = std::move(*thread);
}

void ParkingMemory::Run() {
  MutexLock lock(mutex_);
  while (true) {
    while (!stopping_ && (ready_.size() >= ready_blocks_ || !MayMakeMore())) changed_.Wait(mutex_);
    if (stopping_) return;
    if (lacking_) {
      // A Take() that gets memory ends the wait.
      const auto again = std::chrono::steady_clock::now() + kTryAgain;
      while (lacking_ && !stopping_ && changed_.WaitUntil(mutex_, again)) continue;
      lacking_ = false;
      continue;
    }
    ++made_;
    making_ = true;
    lock.Unlock();
    Result<PresentMemory> block = CatchExhaustion(kPurpose, [this] { return PresentMemory::Allocate(block_bytes_); });
    lock.Lock();
    making_ = false;
    if (block.ok()) {
      ready_.push_back(std::move(*block));
    } else {
      // Take() allocates again and reports the error.
      --made_;
      lacking_ = true;
    }
    changed_.NotifyAll();
  }
}

Result<LockedMemory> ParkingMemory::Take() {
  QTTS_ASSIGN_OR_RETURN(PresentMemory block, TakePresent());
  Result<LockedMemory> locked = LockedMemory::Lock(std::move(block));
  if (!locked.ok()) {
    // It is gone, and another may be made.
    const MutexLock lock(mutex_);
    --made_;
  }
  return locked;
}

size_t ParkingMemory::ready() const {
  const MutexLock lock(mutex_);
  return ready_.size();
}

bool ParkingMemory::lacking() const {
  const MutexLock lock(mutex_);
  return lacking_;
}

Result<PresentMemory> ParkingMemory::TakePresent() {
  MutexLock lock(mutex_);
  while (ready_.empty() && !MayMakeMore() && making_) changed_.Wait(mutex_);
  if (!ready_.empty()) {
    PresentMemory block = std::move(ready_.back());
    ready_.pop_back();
    changed_.NotifyAll();
    return block;
  }
  if (!MayMakeMore()) {
    return Status::ResourceExhausted("the " + std::to_string(limit_) +
                                     " bytes of host memory for parked utterances are in use");
  }
  ++made_;
  lock.Unlock();
  Result<PresentMemory> block = PresentMemory::Allocate(block_bytes_);
  lock.Lock();
  if (!block.ok()) {
    --made_;
  } else if (std::exchange(lacking_, false)) {
    changed_.NotifyAll();
  }
  return block;
}

}  // namespace qtts::cuda
