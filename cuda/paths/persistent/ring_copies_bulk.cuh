// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_RING_COPIES_BULK_CUH_
#define QTTS_CUDA_PATHS_PERSISTENT_RING_COPIES_BULK_CUH_

#include <cstdint>

#include "paths/persistent/frame_kernel.h"
#include "runtime/async_copy.cuh"

// Copies into the ring of weights by one thread, with bulk copies. Compute capability 9.0 and later.
namespace qtts::cuda {

class BulkCopies {
 public:
  static constexpr RingCopies kKind = RingCopies::kBulk;
  static constexpr int kThreads = 1;  // of a piece
  static constexpr int kMaxWarps = 1;
  static __device__ __forceinline__ int Warps(int /*ring_slots*/) { return 1; }
  template <typename Traits>
  static constexpr int kMaxWindow = Traits::kMaxBulkWindow;

  __device__ BulkCopies() { asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy_)); }

  static __device__ __forceinline__ void FenceInitialization() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  static __device__ __forceinline__ bool Passed(uint64_t* barrier, unsigned parity) {
    uint32_t passed;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(passed)
                 : "r"(SharedAddress(barrier)), "r"(parity)
                 : "memory");
    return passed != 0;
  }
  static __device__ __forceinline__ void Arrive(uint64_t* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(barrier)) : "memory");
  }
  // Stands for the decisions of a warp, as do the next three: a thread is alone.
  static __device__ __forceinline__ bool IsFirst() { return true; }
  static __device__ __forceinline__ bool AllSee(bool value) { return value; }
  static __device__ __forceinline__ bool AnySees(bool value) { return value; }
  static __device__ __forceinline__ int FirstOf(int value) { return value; }

  // Copies a piece of `bytes` bytes, of which `full` hears.
  template <int kBytes>
  __device__ __forceinline__ void Copy(char* to, const char* from, int bytes, uint64_t* full) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(full)), "r"(bytes)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
            "r"(SharedAddress(to)),
        "l"(from), "r"(bytes), "r"(SharedAddress(full)), "l"(policy_)
        : "memory");
  }
  static __device__ __forceinline__ void Prefetch(const char* from, int bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
  }

 private:
  uint64_t policy_ = 0;
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_PATHS_PERSISTENT_RING_COPIES_BULK_CUH_
