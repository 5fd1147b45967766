// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_WEIGHT_SENDER_CUH_
#define QTTS_CUDA_PATHS_PERSISTENT_WEIGHT_SENDER_CUH_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "paths/persistent/frame_kernel.h"
#include "paths/persistent/frame_memory.cuh"
#include "paths/persistent/frame_order.h"
#include "paths/persistent/frame_shape.cuh"

// The order in which the copying and the prefetching thread (weight_ring.cuh) send a frame's tiles: the order in which
// the team uses them (frame_order.h).
namespace qtts::cuda::persistent {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// A matrix of `tiles` tiles (gemm.h) of tile_bytes: this block's.
template <typename Ring>
__device__ __forceinline__ void SendTiles(Ring* ring, const char* weights, int tiles, int tile_bytes) {
#pragma unroll 1
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += kBlocks) {
    ring->Send(weights + static_cast<int64_t>(tile) * tile_bytes, tile_bytes);
  }
}

// Sends the weights of one operation of a layer.
template <Operation kOperation, typename Ring>
__device__ __forceinline__ void SendOperation(Ring* ring, const PersistentLayer& layer, int hidden) {
  if constexpr (kOperation == Operation::kQkv) SendTiles(ring, layer.qkv, kQkvWidth / 16, 32 * hidden);
  if constexpr (kOperation == Operation::kO) SendTiles(ring, layer.o, hidden / 8, 16 * kQueryWidth);
  if constexpr (kOperation == Operation::kGated) SendTiles(ring, layer.gated, 3 * hidden / 8, 32 * hidden);
  if constexpr (kOperation == Operation::kDown) SendTiles(ring, layer.down, hidden / 8, 16 * 3 * hidden);
}

template <typename Ring, size_t... kIndices>
__device__ __forceinline__ void SendLayer(Ring* ring, const PersistentLayer& layer, int hidden,
                                          std::index_sequence<kIndices...> /*operations*/) {
  (SendOperation<kLayerOperations[kIndices].operation>(ring, layer, hidden), ...);
}

template <typename Ring>
__device__ void SendPass(Ring* ring, const PersistentStack& stack, const PersistentLayer* layers, int hidden) {
  ring->SetPace(stack.pace);
#pragma unroll 1
  for (int i = 0; i < stack.num_layers; ++i) {
    SendLayer(ring, layers[stack.first_layer + i], hidden, std::make_index_sequence<kLayerOperations.size()>());
  }
}

// Sends the weights of one operation of the talker's end.
template <Operation kOperation, int kTalkerHidden, typename Ring>
__device__ __forceinline__ void SendTalkerEnd(const FrameKernelArguments& a, Ring* ring) {
  if constexpr (kOperation == Operation::kHead) {
    SendTiles(ring, a.talker_head, (a.talker_vocab + 15) / 16, 32 * kTalkerHidden);
  }
  if constexpr (kOperation == Operation::kProject && kTalkerHidden != kPersistentHidden) {
    SendTiles(ring, a.projection, kPersistentHidden / 16, 32 * kTalkerHidden);
  }
}

template <int kTalkerHidden, typename Ring, size_t... kIndices>
__device__ __forceinline__ void SendTalkerEnd(const FrameKernelArguments& a, Ring* ring,
                                              std::index_sequence<kIndices...> /*operations*/) {
  (SendTalkerEnd<kTalkerEndOrder[kIndices], kTalkerHidden>(a, ring), ...);
}

template <int kTalkerHidden, int kStreams, typename Ring>
__device__ void SendFrame(const FrameKernelArguments& a, const SharedMemory<kTalkerHidden, kStreams>& shared,
                          Ring* ring) {
  SendPass(ring, shared.stacks[0], shared.layers, kTalkerHidden);
  SendTalkerEnd<kTalkerHidden>(a, ring, std::make_index_sequence<kTalkerEndOrder.size()>());
#pragma unroll 1
  for (int pass = Paired(kStreams) ? 0 : kHiddenPass; pass < a.groups - 1; ++pass) {
    SendPass(ring, shared.stacks[1], shared.layers, kPersistentHidden);
    if (pass == kHiddenPass) continue;
    SendTiles(ring, a.passes[pass].head, (a.predictor_vocab + 15) / 16, 32 * kPersistentHidden);
  }
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace qtts::cuda::persistent

#endif  // QTTS_CUDA_PATHS_PERSISTENT_WEIGHT_SENDER_CUH_
