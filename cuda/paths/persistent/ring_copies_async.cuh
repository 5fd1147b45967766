// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_RING_COPIES_ASYNC_CUH_
#define QTTS_CUDA_PATHS_PERSISTENT_RING_COPIES_ASYNC_CUH_

#include <cstdint>

#include "paths/persistent/frame_kernel.h"
#include "runtime/async_copy.cuh"
#include "runtime/barrier.cuh"

// Copies into the ring of weights by warps, with cp.async. Compute capability 8.0 and later. More than one, so that the
// rate does not depend on how fast a warp issues them.
namespace qtts::cuda {

class AsyncCopies {
 public:
  static constexpr RingCopies kKind = RingCopies::kAsync;
  static constexpr int kThreads = 32;  // of a piece
  static constexpr int kMaxWarps = 2;
  static __device__ __forceinline__ int Warps(int ring_slots) { return AsyncCopyWarps(ring_slots); }
  template <typename Traits>
  static constexpr int kMaxWindow = Traits::kMaxAsyncWindow;

  __device__ AsyncCopies() : lane_(static_cast<int>(threadIdx.x) % 32), policy_(EvictFirst()) {}

  // Does nothing: the block's first barrier is enough, as only threads of the block use the barriers of the ring.
  static __device__ __forceinline__ void FenceInitialization() {}
  static __device__ __forceinline__ bool Passed(uint64_t* barrier, unsigned parity) {
    return HasPassed(SharedAddress(barrier), parity);
  }
  static __device__ __forceinline__ void Arrive(uint64_t* barrier) { ArriveAt(SharedAddress(barrier)); }
  // Makes all lanes decide alike, as do the next three.
  static __device__ __forceinline__ bool IsFirst() { return threadIdx.x % 32 == 0; }
  static __device__ __forceinline__ bool AllSee(bool value) { return __all_sync(~0U, value) != 0; }
  static __device__ __forceinline__ bool AnySees(bool value) { return __any_sync(~0U, value) != 0; }
  static __device__ __forceinline__ int FirstOf(int value) { return __shfl_sync(~0U, value, 0); }

  // Copies a whole piece, of which `full` hears: each lane arrives there once its copies are complete, which makes them
  // visible to the threads that wait there. A lane's 16 bytes are 512 bytes behind its last ones.
  template <int kBytes>
  __device__ __forceinline__ void Copy(char* to, const char* from, int /*bytes*/, uint64_t* full) const {
    constexpr int kStep = 32 * 16;
    const uint32_t target = SharedAddress(to) + lane_ * 16;
    const char* const source = from + lane_ * 16;
#pragma unroll
    for (int at = 0; at < kBytes; at += kStep) {
      if (at + kStep > kBytes && lane_ * 16 >= kBytes - at) break;
      CopyAsync16(target + at, source + at, policy_);
    }
    ArriveWithCopies(SharedAddress(full));
  }
  static __device__ __forceinline__ void Prefetch(const char* from, int bytes) {
    constexpr int kLine = 128;
    for (int at = static_cast<int>(threadIdx.x) % 32 * kLine; at < bytes; at += 32 * kLine) PrefetchL2(from + at);
  }

 private:
  int lane_;
  CachePolicy policy_;
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_PATHS_PERSISTENT_RING_COPIES_ASYNC_CUH_
