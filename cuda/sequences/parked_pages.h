// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_SEQUENCES_PARKED_PAGES_H_
#define QTTS_CUDA_SEQUENCES_PARKED_PAGES_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>
#include <vector>

#include "qtts/status.h"
#include "runtime/host_memory.h"
#include "sequences/parking_memory.h"

namespace qtts::cuda {

// Pages of key-value memory of parked slots, in page-locked host memory. Memory that was used once stays, for the next
// slot: page-locking takes as long as two copies.
//
// Copies are enqueued on one stream, like all work on pages: a page may be reused as soon as the call returns. Not
// thread-safe.
class ParkedPages {
 public:
  // `limit`: bytes of host memory, at most. `stream` outlives it.
  ParkedPages(size_t page_bytes, int max_slots, size_t limit, cudaStream_t stream);

  // Begins to make memory ready, beside the caller: slots will soon be parked.
  void Expect() { memory_.Start(); }
  // Copies the `pages` of `slot`, which has none here, to the host. kResourceExhausted if there is no host memory: then
  // nothing is kept.
  Status Save(int slot, std::span<void* const> pages);
  // Copies what Save() kept of `slot` to as many other `pages`, and forgets it.
  Status Restore(int slot, std::span<void* const> pages);
  void Drop(int slot);

  bool Holds(int slot) const { return !slots_[static_cast<size_t>(slot)].empty(); }
  size_t PagesOf(int slot) const { return slots_[static_cast<size_t>(slot)].size(); }

 private:
  const size_t page_bytes_;
  const cudaStream_t stream_;
  ParkingMemory memory_;
  std::vector<LockedMemory> free_;
  std::vector<std::vector<LockedMemory>> slots_;
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_SEQUENCES_PARKED_PAGES_H_
