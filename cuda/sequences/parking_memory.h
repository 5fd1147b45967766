// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_SEQUENCES_PARKING_MEMORY_H_
#define QTTS_CUDA_SEQUENCES_PARKING_MEMORY_H_

#include <cstddef>
#include <thread>
#include <vector>

#include "qtts/mutex.h"
#include "qtts/status.h"
#include "runtime/host_memory.h"

namespace qtts::cuda {

// Memory of the host for pages of parked utterances, block by block. Once Start() was called, a thread of its own keeps
// some blocks ready, since the system takes ten times as long to make a block's pages present as it takes to copy one.
// After a lack of memory the thread tries again in a second, or once a block could be made elsewhere.
// Start(), Take() and the destructor: one thread at a time.
class ParkingMemory {
 public:
  // `limit`: bytes of all blocks, at most.
  ParkingMemory(size_t block_bytes, size_t limit);
  // Waits for a block that is being made.
  ~ParkingMemory();
  ParkingMemory(const ParkingMemory&) = delete;
  ParkingMemory& operator=(const ParkingMemory&) = delete;

  // Starts the thread, since blocks will soon be taken. Without memory for it they are made when they are taken, and
  // the next call tries again.
  void Start();
  // Returns a block that is ready, or a new one. kResourceExhausted if all blocks were taken, or the host has no
  // memory.
  Result<LockedMemory> Take();

  // Functions for tests and any thread: the blocks that are ready; whether the thread waits for memory:
  size_t ready() const;
  bool lacking() const;

 private:
  void Run();
  Result<PresentMemory> TakePresent();
  bool MayMakeMore() const QTTS_REQUIRES(mutex_) { return made_ < limit_ / block_bytes_; }

  const size_t block_bytes_;
  const size_t limit_;
  const size_t ready_blocks_;  // as many are kept ready
  mutable Mutex mutex_;
  Condition changed_;
  std::vector<PresentMemory> ready_ QTTS_GUARDED_BY(mutex_);
  size_t made_ QTTS_GUARDED_BY(mutex_) = 0;       // blocks: taken, ready or being made
  bool making_ QTTS_GUARDED_BY(mutex_) = false;   // by the thread
  bool lacking_ QTTS_GUARDED_BY(mutex_) = false;  // the thread got no memory
  bool stopping_ QTTS_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_SEQUENCES_PARKING_MEMORY_H_
