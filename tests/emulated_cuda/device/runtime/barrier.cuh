// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_BARRIER_CUH_
#define QTTS_CUDA_RUNTIME_BARRIER_CUH_

#include <cstdint>
#include <cstdlib>

#include "cuda_device.h"
#include "thread_grid.h"

// In place of cuda/runtime/barrier.cuh, with what all compute capabilities have.
namespace qtts::cuda {

struct EmulatedBarrier {
  uint16_t expected, pending;
  uint32_t parity;  // of the phase that has not ended
};
static_assert(sizeof(EmulatedBarrier) == sizeof(uint64_t));
inline EmulatedBarrier& BarrierAt(uint32_t barrier) {
  return *reinterpret_cast<EmulatedBarrier*>(emulated::SharedMemory() + barrier);
}

inline void InitializeBarrier(uint32_t barrier, int arrivals) {
  const auto expected = static_cast<uint16_t>(arrivals);
  BarrierAt(barrier) = {expected, expected, 0};
}
inline void ArriveAt(uint32_t barrier) {
  EmulatedBarrier& b = BarrierAt(barrier);
  if (b.pending == 0) std::abort();  // was not initialized
  if (--b.pending > 0) return;
  b.pending = b.expected;
  b.parity ^= 1;
  emulated::Changed();
}
inline bool HasPassed(uint32_t barrier, uint32_t parity, const emulated::Place& place = emulated::Place::current()) {
  if (BarrierAt(barrier).parity != parity) return true;
  emulated::Poll(place);
  return false;
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_BARRIER_CUH_
