// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_RING_COPIES_BULK_CUH_
#define QTTS_CUDA_PATHS_PERSISTENT_RING_COPIES_BULK_CUH_

#include <cstdint>
#include <cstring>

#include "paths/persistent/frame_kernel.h"
#include "runtime/async_copy.cuh"

// In place of cuda/paths/persistent/ring_copies_bulk.cuh.
namespace qtts::cuda {

class BulkCopies {
 public:
  static constexpr RingCopies kKind = RingCopies::kBulk;
  static constexpr int kThreads = 1;
  static constexpr int kMaxWarps = 1;
  static int Warps(int /*ring_slots*/) { return 1; }
  template <typename Traits>
  static constexpr int kMaxWindow = Traits::kMaxBulkWindow;

  static void FenceInitialization() {}
  static bool Passed(uint64_t* barrier, unsigned parity, const emulated::Place& place = emulated::Place::current()) {
    return HasPassed(SharedAddress(barrier), parity, place);
  }
  static void Arrive(uint64_t* barrier) { ArriveAt(SharedAddress(barrier)); }
  static bool IsFirst() { return true; }
  static bool AllSee(bool value) { return value; }
  static bool AnySees(bool value) { return value; }
  static int FirstOf(int value) { return value; }

  template <int kBytes>
  void Copy(char* to, const char* from, int bytes, uint64_t* full) const {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    Arrive(full);
  }
  static void Prefetch(const char* /*from*/, int /*bytes*/) {}
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_PATHS_PERSISTENT_RING_COPIES_BULK_CUH_
