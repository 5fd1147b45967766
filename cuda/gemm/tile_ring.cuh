// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_GEMM_TILE_RING_CUH_
#define QTTS_CUDA_GEMM_TILE_RING_CUH_

#include "runtime/barrier.cuh"

// The ring through which the operands of products by warpgroups come: each kernel says what a stage holds.
namespace qtts::cuda::gemm {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// The ring of stages of a block, in shared memory. Barriers count who has filled and who has emptied a stage.
struct Ring : RingPlace {
  uint32_t stages, full, empty;

  __device__ __forceinline__ uint32_t full_barrier() const { return full + static_cast<uint32_t>(index) * 8; }
  __device__ __forceinline__ uint32_t empty_barrier(int of) const { return empty + static_cast<uint32_t>(of) * 8; }
};

// A block's tiles: every `step`-th.
struct TileRange {
  int first, step, end;
};

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace qtts::cuda::gemm

#endif  // QTTS_CUDA_GEMM_TILE_RING_CUH_
