// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_WARPGROUP_CUH_
#define QTTS_CUDA_RUNTIME_WARPGROUP_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

// The matrix instruction of four consecutive warps (wgmma), the first of which has a number divisible by four. Code for
// compute capability 9.0 alone (sm_90a).
//
// The instruction runs asynchronously: between Run() and the AwaitMmas() that covers its group nobody touches its sums
// or its operand `a`. The compiler does not know that; KeepInPlace() after the wait holds their registers until then.
namespace qtts::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Orders earlier accesses to registers before the next Run().
__device__ __forceinline__ void FenceMmas() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Ends a group.
__device__ __forceinline__ void CommitMmas() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most the last kLeft groups are running.
template <int kLeft>
__device__ __forceinline__ void AwaitMmas() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
template <int kCount>
__device__ __forceinline__ void KeepInPlace(float (&v)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(v[i])::"memory");
}
template <int kCount>
__device__ __forceinline__ void KeepInPlace(uint32_t (&v)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(v[i])::"memory");
}

// d (+)= a b with a [64][16] from registers, b [16][kColumns] from shared memory, both of T: __nv_bfloat16 or __half; d
// [64][kColumns] in F32. keep = 0 starts from zero. Warp w of the four has rows 16 w ..; lane l = 4 g + q has, as in
// mma.sync:
//   a[0], a[1]: rows g and g + 8, elements 2 q and 2 q + 1; a[2], a[3]: the same rows, elements 2 q + 8 and 2 q + 9
//   d[4 j + i]: row g + i / 2 * 8, column 8 j + 2 q + i % 2
// b is a MatrixDescriptor().
template <int kColumns, typename T>
struct WarpgroupMma;

// Operands are named by their number in the text, so a size differs from another by nothing but numbers: 16 sums' names
// and operands, and the instruction around them, which the numbers of what comes after the sums complete.
#define QTTS_SUMS_0 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define QTTS_SUMS_16 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define QTTS_SUMS_32 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define QTTS_SUMS_48 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define QTTS_SUMS_64 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define QTTS_SUMS_80 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define QTTS_SUMS(i)                                                                                                \
  "+f"(d[(i) + 0]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3]), "+f"(d[(i) + 4]), "+f"(d[(i) + 5]),       \
      "+f"(d[(i) + 6]), "+f"(d[(i) + 7]), "+f"(d[(i) + 8]), "+f"(d[(i) + 9]), "+f"(d[(i) + 10]), "+f"(d[(i) + 11]), \
      "+f"(d[(i) + 12]), "+f"(d[(i) + 13]), "+f"(d[(i) + 14]), "+f"(d[(i) + 15])
#define QTTS_WARPGROUP_MMA(columns, T, type, names, a0, a1, a2, a3, descriptor, kept, ...)                        \
  template <>                                                                                                     \
  struct WarpgroupMma<columns, T> {                                                                               \
    static constexpr int kSums = columns / 2;                                                                     \
    static __device__ __forceinline__ void Run(float (&d)[kSums], const uint32_t (&a)[4], uint64_t b, int keep) { \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #kept                                                     \
                   ", 0;\n"                                                                                       \
                   "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type " {" names "}, {%" #a0   \
                   ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #descriptor ", p, 1, 1, 0;\n}"                            \
                   : __VA_ARGS__                                                                                  \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));                              \
    }                                                                                                             \
  }
QTTS_WARPGROUP_MMA(64, __nv_bfloat16, "bf16", QTTS_SUMS_0 ", " QTTS_SUMS_16, 32, 33, 34, 35, 36, 37, QTTS_SUMS(0),
                   QTTS_SUMS(16));
QTTS_WARPGROUP_MMA(128, __nv_bfloat16, "bf16", QTTS_SUMS_0 ", " QTTS_SUMS_16 ", " QTTS_SUMS_32 ", " QTTS_SUMS_48, 64,
                   65, 66, 67, 68, 69, QTTS_SUMS(0), QTTS_SUMS(16), QTTS_SUMS(32), QTTS_SUMS(48));
QTTS_WARPGROUP_MMA(64, __half, "f16", QTTS_SUMS_0 ", " QTTS_SUMS_16, 32, 33, 34, 35, 36, 37, QTTS_SUMS(0),
                   QTTS_SUMS(16));
QTTS_WARPGROUP_MMA(96, __half, "f16", QTTS_SUMS_0 ", " QTTS_SUMS_16 ", " QTTS_SUMS_32, 48, 49, 50, 51, 52, 53,
                   QTTS_SUMS(0), QTTS_SUMS(16), QTTS_SUMS(32));
QTTS_WARPGROUP_MMA(128, __half, "f16", QTTS_SUMS_0 ", " QTTS_SUMS_16 ", " QTTS_SUMS_32 ", " QTTS_SUMS_48, 64, 65, 66,
                   67, 68, 69, QTTS_SUMS(0), QTTS_SUMS(16), QTTS_SUMS(32), QTTS_SUMS(48));
QTTS_WARPGROUP_MMA(192, __half, "f16",
                   QTTS_SUMS_0 ", " QTTS_SUMS_16 ", " QTTS_SUMS_32 ", " QTTS_SUMS_48 ", " QTTS_SUMS_64
                               ", " QTTS_SUMS_80,
                   96, 97, 98, 99, 100, 101, QTTS_SUMS(0), QTTS_SUMS(16), QTTS_SUMS(32), QTTS_SUMS(48), QTTS_SUMS(64),
                   QTTS_SUMS(80));

// The same with a [64][16] from shared memory, too: a MatrixDescriptor().
template <int kColumns, typename T>
struct SharedWarpgroupMma;

#define QTTS_SHARED_WARPGROUP_MMA(columns, T, type, names, descriptor_a, descriptor_b, kept, ...)     \
  template <>                                                                                         \
  struct SharedWarpgroupMma<columns, T> {                                                             \
    static constexpr int kSums = columns / 2;                                                         \
    static __device__ __forceinline__ void Run(float (&d)[kSums], uint64_t a, uint64_t b, int keep) { \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #kept                                         \
                   ", 0;\n"                                                                           \
                   "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type " {" names   \
                   "}, %" #descriptor_a ", %" #descriptor_b ", p, 1, 1, 0, 0;\n}"                     \
                   : __VA_ARGS__                                                                      \
                   : "l"(a), "l"(b), "r"(keep));                                                      \
    }                                                                                                 \
  }
QTTS_SHARED_WARPGROUP_MMA(32, __nv_bfloat16, "bf16", QTTS_SUMS_0, 16, 17, 18, QTTS_SUMS(0));
QTTS_SHARED_WARPGROUP_MMA(64, __nv_bfloat16, "bf16", QTTS_SUMS_0 ", " QTTS_SUMS_16, 32, 33, 34, QTTS_SUMS(0),
                          QTTS_SUMS(16));
QTTS_SHARED_WARPGROUP_MMA(128, __nv_bfloat16, "bf16", QTTS_SUMS_0 ", " QTTS_SUMS_16 ", " QTTS_SUMS_32 ", " QTTS_SUMS_48,
                          64, 65, 66, QTTS_SUMS(0), QTTS_SUMS(16), QTTS_SUMS(32), QTTS_SUMS(48));
QTTS_SHARED_WARPGROUP_MMA(192, __nv_bfloat16, "bf16",
                          QTTS_SUMS_0 ", " QTTS_SUMS_16 ", " QTTS_SUMS_32 ", " QTTS_SUMS_48 ", " QTTS_SUMS_64
                                      ", " QTTS_SUMS_80,
                          96, 97, 98, QTTS_SUMS(0), QTTS_SUMS(16), QTTS_SUMS(32), QTTS_SUMS(48), QTTS_SUMS(64),
                          QTTS_SUMS(80));
#undef QTTS_SHARED_WARPGROUP_MMA
#undef QTTS_SUMS_0
#undef QTTS_SUMS_16
#undef QTTS_SUMS_32
#undef QTTS_SUMS_48
#undef QTTS_SUMS_64
#undef QTTS_SUMS_80
#undef QTTS_SUMS
#undef QTTS_WARPGROUP_MMA

// Sets the registers of each thread of the calling warpgroup from here on: more, once other warpgroups have given
// them up.
template <int kCount>
__device__ __forceinline__ void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ __forceinline__ void GiveUpRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_WARPGROUP_CUH_
