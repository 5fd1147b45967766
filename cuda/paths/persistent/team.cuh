// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_TEAM_CUH_
#define QTTS_CUDA_PATHS_PERSISTENT_TEAM_CUH_

#include <cstdint>

#include "paths/persistent/frame_shape.cuh"

// How the compute threads share work and synchronise, and hints to the compiler.
namespace qtts::cuda::persistent {

// Tells the compiler that a value is the same in all lanes, so that code depending on it needs no divergence handling.
__device__ __forceinline__ int Uniform(int value) { return __shfl_sync(~0U, value, 0); }

// Forces the compiler to compute an address here instead of at its use. Waits lie between the two, and the code after a
// wait is on the critical path of other blocks.
template <typename T>
__device__ __forceinline__ T* Now(T* address) {
  asm volatile("" : "+l"(address));
  return address;
}

// Returns the thread block's dynamic shared memory.
__device__ __forceinline__ char* BlockMemory() {
  extern __shared__ __align__(128) char memory[];
  return memory;
}

// All warps but the last warpgroup's, which bring weights.
struct Team {
  static constexpr int kThreads = kTeamThreads;
  static constexpr int kWarps = kPersistentWarps;
  static __device__ __forceinline__ void Sync() { asm volatile("barrier.cta.sync 1, 256;" ::: "memory"); }
  static __device__ __forceinline__ bool Any(bool value) {
    uint32_t any;
    asm volatile(
        "{\n.reg .pred p, q;\nsetp.ne.u32 p, %1, 0;\nbarrier.cta.red.or.pred q, 1, 256, p;\nselp.u32 %0, 1, 0, q;\n}"
        : "=r"(any)
        : "r"(static_cast<uint32_t>(value))
        : "memory");
    return any != 0;
  }
};

}  // namespace qtts::cuda::persistent

#endif  // QTTS_CUDA_PATHS_PERSISTENT_TEAM_CUH_
