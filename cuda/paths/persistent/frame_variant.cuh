// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_FRAME_VARIANT_CUH_
#define QTTS_CUDA_PATHS_PERSISTENT_FRAME_VARIANT_CUH_

#include "paths/persistent/frame_block.cuh"
#include "paths/persistent/frame_kernel.h"
#include "paths/persistent/frame_memory.cuh"
#include "paths/persistent/frame_passes.cuh"
#include "paths/persistent/frame_shape.cuh"
#include "paths/persistent/frame_variant.h"
#include "paths/persistent/weight_ring.cuh"
#include "paths/persistent/weight_sender.cuh"

// The persistent kernel itself: its threads' parts. frame_block.cuh says how it works.
namespace qtts::cuda::persistent {

// Empty but in code for compute capability 9.0 alone, the only one whose warps can hand each other registers.
template <int kTalkerHidden, int kStreams>
__global__ void __maxnreg__(kRegisters) FrameKernel(const __grid_constant__ FrameKernelArguments a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(128) char memory[];
  auto& shared =
      *reinterpret_cast<SharedMemory<kTalkerHidden, kStreams>*>(memory + a.ring_slots * kPersistentPieceBytes);
  if (a.frame.live[0] == 0) return;
  const int layers = a.talker.num_layers + a.predictor.num_layers;
  for (int i = static_cast<int>(threadIdx.x); i < layers; i += kThreads) shared.layers[i] = a.layers[i];
  for (int i = static_cast<int>(threadIdx.x); i < a.groups - 1; i += kThreads) shared.passes[i] = a.passes[i];
  if (threadIdx.x < kStreams) shared.slots[threadIdx.x] = a.frame.slots[threadIdx.x];
  if (threadIdx.x == 0) {
    shared.stacks[0] = a.talker;
    shared.stacks[1] = a.predictor;
    if (!a.runs_talker) shared.stacks[0].num_layers = 0;
    shared.stop = 0;
    shared.gave_up = 0;
    InitializeRing(&shared.ring, a.ring_slots, kWarps);
  }
  __syncthreads();
  if (threadIdx.x >= kTeamThreads) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCopyRegisters));
    if (threadIdx.x == kTeamThreads) {
      RingWriter ring(&shared.ring, memory, a.ring_slots, &shared.stop);
      SendFrame(a, shared, &ring);
      ring.Drain();
    } else if (threadIdx.x == kTeamThreads + 32) {
      RingPrefetcher prefetcher(&shared.ring, &shared.stop);
      SendFrame(a, shared, &prefetcher);
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kTeamRegisters));
  Block<kTalkerHidden, kStreams>(a, &shared, memory).Run();
#endif
}

template <int kTalkerHidden>
Variant VariantOf(int rows) {
  if (rows == 1) return {FrameKernel<kTalkerHidden, 1>, SharedBytes<kTalkerHidden, 1>};
  if (rows == 2) return {FrameKernel<kTalkerHidden, 2>, SharedBytes<kTalkerHidden, 2>};
  if (rows == 4) return {FrameKernel<kTalkerHidden, 4>, SharedBytes<kTalkerHidden, 4>};
  return {FrameKernel<kTalkerHidden, 8>, SharedBytes<kTalkerHidden, 8>};
}

}  // namespace qtts::cuda::persistent

#endif  // QTTS_CUDA_PATHS_PERSISTENT_FRAME_VARIANT_CUH_
