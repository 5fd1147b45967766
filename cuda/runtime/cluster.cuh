// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_CLUSTER_CUH_
#define QTTS_CUDA_RUNTIME_CLUSTER_CUH_

#include <cstdint>

// Data exchange between the thread blocks of a cluster: remote stores counted by the receiver's barrier in shared
// memory. A cluster barrier that orders writes would be a device-wide fence instead.
namespace qtts::cuda {

#if __CUDA_ARCH__ >= 900

__device__ __forceinline__ int BlockOfCluster() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// Arrives at a barrier of all threads of all blocks; AwaitCluster() is the other half. Orders no writes: those travel
// by SendFour().
__device__ __forceinline__ void ArriveAtCluster() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void AwaitCluster() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }

// Returns the address in another thread block of the cluster that corresponds to `address` in this one's shared memory.
__device__ __forceinline__ uint32_t AddressIn(int block, uint32_t address) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
  return there;
}
// Stores into a block of the cluster, whose `arrivals` counts the bytes when they are there.
__device__ __forceinline__ void SendFour(int block, uint32_t to, uint32_t arrivals, const float (&v)[4]) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                   AddressIn(block, to)),
               "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "r"(AddressIn(block, arrivals))
               : "memory");
}
// Initializes a counter of arriving bytes; called by one thread, before the cluster's first barrier.
__device__ __forceinline__ void InitializeArrivals(uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;" ::"r"(arrivals)
               : "memory");
}
// Announces so many bytes, called by one thread. Some may have arrived already.
__device__ __forceinline__ void ExpectArrivals(uint32_t arrivals, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(arrivals), "r"(bytes) : "memory");
}
__device__ __forceinline__ void AwaitArrivals(uint32_t arrivals) {
  uint32_t passed = 0;
  while (passed == 0) {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(passed)
        : "r"(arrivals)
        : "memory");
  }
}

#endif  // __CUDA_ARCH__ >= 900

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_CLUSTER_CUH_
