// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_BARRIER_CUH_
#define QTTS_CUDA_RUNTIME_BARRIER_CUH_

#include <cstdint>

// Barriers in shared memory (mbarrier) that count arrivals and bytes of bulk copies, for rings of stages that one
// thread fills and other warps empty. Addresses are those of SharedAddress(). Before compute capability 9.0 there are
// InitializeBarrier(), ArriveAt() and HasPassed() alone, and copies of threads arrive (async_copy.cuh).
//
// A phase ends when the initial number of arrivals has come and all announced bytes are there. Its number modulo 2 is
// the parity: a wait for parity p returns when the phase of parity p has ended. Before the first phase ends the phase
// before it, of parity 1, counts as ended.
namespace qtts::cuda {

// Where a warp is in a ring: an entry, and the parity of the phase that its barriers are in.
struct RingPlace {
  int index = 0;
  uint32_t phase = 0;

  __device__ __forceinline__ void Next(int count) {
    if (++index == count) {
      index = 0;
      phase ^= 1;
    }
  }
};

// Initializes a barrier: by one thread, before any other use; then FenceBarriers() if copies of the hardware arrive
// there or another block, then a barrier of the block or cluster.
__device__ __forceinline__ void InitializeBarrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void ArriveAt(uint32_t barrier) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}" ::"r"(barrier) : "memory");
}
// Returns whether the phase of this parity has ended.
__device__ __forceinline__ bool HasPassed(uint32_t barrier, uint32_t parity) {
  uint32_t passed;
  asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(passed)
               : "r"(barrier), "r"(parity)
               : "memory");
  return passed != 0;
}

#if __CUDA_ARCH__ >= 900

// Makes the initialization visible to bulk copies and to the cluster.
__device__ __forceinline__ void FenceBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives, and announces `bytes` of copies to this phase. Some may have come already.
__device__ __forceinline__ void ArriveAndExpect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Waits for the end of the phase of this parity. Traps after some seconds: an error instead of a device that hangs.
// kOfCluster: other blocks of the cluster arrive there, or send what is waited for. It empties L1, which takes longer
// than a stage of a ring may.
template <bool kOfCluster = false>
__device__ __forceinline__ void AwaitPhase(uint32_t barrier, uint32_t parity) {
  constexpr int kQuickTries = 1000;
  constexpr long long kPatience = 10'000'000'000;  // clock cycles
  uint32_t passed = 0;
  long long start = 0;
  for (int i = 0; passed == 0; ++i) {
    if constexpr (kOfCluster) {
      asm volatile(
          "{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n}"
          : "=r"(passed)
          : "r"(barrier), "r"(parity)
          : "memory");
    } else {
      asm volatile(
          "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n}"
          : "=r"(passed)
          : "r"(barrier), "r"(parity)
          : "memory");
    }
    if (i < kQuickTries) continue;
    if (i == kQuickTries) start = clock64();
    if (clock64() - start > kPatience) __trap();
    i = kQuickTries + 1;
  }
}

// Copies `bytes`, a multiple of 16, from 16-byte aligned memory to shared memory; counted by `barrier`.
__device__ __forceinline__ void CopyBulk(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

#endif  // __CUDA_ARCH__ >= 900

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_BARRIER_CUH_
