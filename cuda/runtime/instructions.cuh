// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_INSTRUCTIONS_CUH_
#define QTTS_CUDA_RUNTIME_INSTRUCTIONS_CUH_

#include <cuda_runtime.h>

#include <cstdint>

// Instructions for which CUDA C++ has no function.
namespace qtts::cuda {

// Loads weights: read once per kernel by one thread block, so not cached in L1.
__device__ __forceinline__ uint4 Streamed(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

// Computes c += a b with a [16][16] weights and b [16][8] activations in BF16, c [16][8] in F32. A column of b
// never touches another column of c.
__device__ __forceinline__ void Mma(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                    uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Computes a b + c of two BF16 each.
__device__ __forceinline__ uint32_t FmaBf16x2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_INSTRUCTIONS_CUH_
