// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_ASYNC_COPY_CUH_
#define QTTS_CUDA_RUNTIME_ASYNC_COPY_CUH_

#include <cstdint>

// Asynchronous copies from global to shared memory (cp.async), in groups of one CommitCopies().
namespace qtts::cuda {

__device__ __forceinline__ uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void CopyAsync16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// Copies zeros instead of what lies at `from` unless `there`.
__device__ __forceinline__ void CopyAsync16(uint32_t to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
// How long L2 keeps what is copied.
using CachePolicy = uint64_t;
// Returns the policy for what is read once: its lines are the first to be replaced.
__device__ __forceinline__ CachePolicy EvictFirst() {
  CachePolicy policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ void CopyAsync16(uint32_t to, const void* from, CachePolicy policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "l"(policy)
               : "memory");
}
__device__ __forceinline__ void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most the last kLeft groups of the calling thread are in flight.
template <int kLeft>
__device__ __forceinline__ void AwaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// Waits for all copies of the calling thread, committed or not.
__device__ __forceinline__ void AwaitAllCopies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Arrives at `barrier` (barrier.cuh) once all copies of the calling thread so far are there; the barrier counts the
// thread among its arrivals.
__device__ __forceinline__ void ArriveWithCopies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// Loads 8 bytes of shared memory.
__device__ __forceinline__ uint2 LoadShared8(uint32_t from) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(from) : "memory");
  return v;
}

// Loads 16 bytes of shared memory.
__device__ __forceinline__ uint4 LoadShared16(uint32_t from) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(from)
               : "memory");
  return v;
}

// Prefetches the 128-byte line of `p` into L2.
__device__ __forceinline__ void PrefetchL2(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

// Prefetches `bytes` bytes from `p` on into L2, both multiples of 16, by one instruction of one thread. Does nothing
// before compute capability 9.0.
__device__ __forceinline__ void PrefetchL2(const void* p, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes));
#endif
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_ASYNC_COPY_CUH_
