// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_FRAME_VARIANT_CUH_
#define QTTS_CUDA_PATHS_PERSISTENT_FRAME_VARIANT_CUH_

#include "paths/persistent/frame_block.cuh"
#include "paths/persistent/frame_kernel.h"
#include "paths/persistent/frame_memory.cuh"
#include "paths/persistent/frame_passes.cuh"
#include "paths/persistent/frame_shape.cuh"
#include "paths/persistent/frame_variant.h"
#include "paths/persistent/team.cuh"
#include "paths/persistent/weight_ring.cuh"
#include "paths/persistent/weight_sender.cuh"
#include "runtime/warpgroup.cuh"

// The persistent kernel itself: its threads' parts. frame_block.cuh says how it works.
namespace qtts::cuda::persistent {

template <typename Traits>
__global__ void __maxnreg__(kRegisters) FrameKernel(const __grid_constant__ FrameKernelArguments a) {
#if defined(__CUDA_ARCH__) || defined(QTTS_EMULATED_CUDA)
  char* const memory = BlockMemory();
  auto& shared =
      *reinterpret_cast<SharedMemory<Traits>*>(memory + a.ring_slots * kPieceBytes<typename Traits::Storage>);
  if (a.frame.live[0] == 0) return;
  const int layers = a.talker.num_layers + a.predictor.num_layers;
  for (int i = static_cast<int>(threadIdx.x); i < layers; i += kThreads) shared.layers[i] = a.layers[i];
  for (int i = static_cast<int>(threadIdx.x); i < a.groups - 1; i += kThreads) shared.passes[i] = a.passes[i];
  if (threadIdx.x < Traits::kStreams) shared.slots[threadIdx.x] = a.frame.slots[threadIdx.x];
  if (threadIdx.x == 0) {
    shared.stacks[0] = a.talker;
    shared.stacks[1] = a.predictor;
    if (!a.runs_talker) shared.stacks[0].num_layers = 0;
    if constexpr (Traits::kFolded) {
      const auto block = static_cast<int>(blockIdx.x);
      const auto blocks = static_cast<int>(gridDim.x);
      shared.folded.deals[0] = DealLayer(kPersistentHidden, block, blocks);
      shared.folded.deals[1] = DealLayer(Traits::kTalkerHidden, block, blocks);
    }
    shared.stop = 0;
    shared.gave_up = 0;
    InitializeRing(&shared.ring, a.ring_slots, kWarps);
  }
  __syncthreads();
  if (threadIdx.x >= kTeamThreads) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    GiveUpRegisters<kCopyRegisters>();
#endif
    const int helper = static_cast<int>(threadIdx.x) - kTeamThreads;
    constexpr int kFirstPrefetching = 32 * Copies::kMaxWarps;
    if (helper < 32 * (Copies::Warps(a.ring_slots) - 1) + Copies::kThreads) {
      RingWriter<typename Traits::Storage> ring(&shared.ring, memory, a.ring_slots, &shared.stop, helper / 32);
      SendFrame(a, shared, &ring);
      ring.Drain();
    } else if (helper >= kFirstPrefetching && helper < kFirstPrefetching + Copies::kThreads &&
               max(a.talker.pace.ahead, a.predictor.pace.ahead) > 1) {
      RingPrefetcher<typename Traits::Storage> prefetcher(&shared.ring, &shared.stop);
      SendFrame(a, shared, &prefetcher);
    }
    return;
  }
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  TakeRegisters<kTeamRegisters>();
#endif
  Block<Traits>(a, &shared, memory).Run();
#endif
}

template <typename Traits>
constexpr Variant VariantOf() {
  return {FrameKernel<Traits>, kSharedBytes<Traits>, Traits::kMaxBulkWindow, Traits::kMaxAsyncWindow};
}

template <int kTalkerHidden, bool kFolded>
Variant VariantOf(int rows) {
  if (rows == 1) return VariantOf<FrameTraits<kTalkerHidden, 1, kFolded>>();
  if (rows == 2) return VariantOf<FrameTraits<kTalkerHidden, 2, kFolded>>();
  if (rows == 4) return VariantOf<FrameTraits<kTalkerHidden, 4, kFolded>>();
  return VariantOf<FrameTraits<kTalkerHidden, 8, kFolded>>();
}

template <int kTalkerHidden, bool kFolded>
Variant Int8VariantOf() {
  return VariantOf<FrameTraits<kTalkerHidden, 1, kFolded, Int8Weights>>();
}

}  // namespace qtts::cuda::persistent

#endif  // QTTS_CUDA_PATHS_PERSISTENT_FRAME_VARIANT_CUH_
