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

// Sends this block's tiles (gemm.h) of a matrix of `outputs` outputs, from tile `first` on.
template <typename Traits, int kTileOutputs, typename Ring>
__device__ __forceinline__ void SendTiles(Ring* ring, const char* weights, int outputs, int columns, int first) {
  const int tile_bytes = Traits::Storage::TileBytes(columns, kTileOutputs);
  const int blocks = Traits::kFolded ? static_cast<int>(gridDim.x) : kMaxBlocks;
#pragma unroll 1
  for (int tile = first; tile * kTileOutputs < outputs; tile += blocks) {
    ring->Send(weights + static_cast<int64_t>(tile) * tile_bytes, tile_bytes);
  }
}

// Sends the weights of one operation of a layer.
template <typename Traits, Operation kOperation, typename Ring>
__device__ __forceinline__ void SendOperation(Ring* ring, const PersistentLayer& layer, const LayerDeal& deal,
                                              int hidden) {
  const int intermediate = PersistentIntermediate(hidden);
  const int own = deal.own.first;
  if constexpr (kOperation == Operation::kQkv) {
    SendTiles<Traits, 16>(ring, layer.qkv, kQkvWidth, hidden, deal.qkv.first);
  }
  if constexpr (kOperation == Operation::kO) SendTiles<Traits, 8>(ring, layer.o, hidden, kQueryWidth, own);
  if constexpr (kOperation == Operation::kGated) {
    SendTiles<Traits, 16>(ring, layer.gated, 2 * intermediate, hidden, deal.gated.first);
  }
  if constexpr (kOperation == Operation::kDown) SendTiles<Traits, 8>(ring, layer.down, hidden, intermediate, own);
}

template <typename Traits, typename Ring, size_t... kIndices>
__device__ __forceinline__ void SendLayer(Ring* ring, const PersistentLayer& layer, const LayerDeal& deal, int hidden,
                                          std::index_sequence<kIndices...> /*operations*/) {
  (SendOperation<Traits, kLayerOperations[kIndices].operation>(ring, layer, deal, hidden), ...);
}

template <typename Traits, typename Ring>
__device__ void SendPass(const SharedMemory<Traits>& shared, Ring* ring, const PersistentStack& stack, int hidden) {
  ring->SetPace(stack.pace);
  const LayerDeal deal = DealOf(shared, hidden);
#pragma unroll 1
  for (int i = 0; i < stack.num_layers; ++i) {
    SendLayer<Traits>(ring, shared.layers[stack.first_layer + i], deal, hidden,
                      std::make_index_sequence<kLayerOperations.size()>());
  }
}

// Sends the weights of one operation of the talker's end.
template <typename Traits, Operation kOperation, typename Ring>
__device__ __forceinline__ void SendTalkerEnd(const FrameKernelArguments& a, Ring* ring) {
  constexpr int kHidden = Traits::kTalkerHidden;
  const auto block = static_cast<int>(blockIdx.x);
  if constexpr (kOperation == Operation::kHead) {
    SendTiles<Traits, 16>(ring, a.talker_head, a.talker_vocab, kHidden, block);
  }
  if constexpr (kOperation == Operation::kProject && kHidden != kPersistentHidden) {
    SendTiles<Traits, 16>(ring, a.projection, kPersistentHidden, kHidden, block);
  }
}

template <typename Traits, typename Ring, size_t... kIndices>
__device__ __forceinline__ void SendTalkerEnd(const FrameKernelArguments& a, Ring* ring,
                                              std::index_sequence<kIndices...> /*operations*/) {
  (SendTalkerEnd<Traits, kTalkerEndOrder[kIndices]>(a, ring), ...);
}

template <typename Traits, typename Ring>
__device__ void SendFrame(const FrameKernelArguments& a, const SharedMemory<Traits>& shared, Ring* ring) {
  SendPass(shared, ring, shared.stacks[0], Traits::kTalkerHidden);
  SendTalkerEnd<Traits>(a, ring, std::make_index_sequence<kTalkerEndOrder.size()>());
#pragma unroll 1
  for (int pass = Paired(Traits::kStreams) ? 0 : kHiddenPass; pass < a.groups - 1; ++pass) {
    SendPass(shared, ring, shared.stacks[1], kPersistentHidden);
    if (pass == kHiddenPass) continue;
    SendTiles<Traits, 16>(ring, a.passes[pass].head, a.predictor_vocab, kPersistentHidden,
                          static_cast<int>(blockIdx.x));
  }
}

}  // namespace qtts::cuda::persistent

#endif  // QTTS_CUDA_PATHS_PERSISTENT_WEIGHT_SENDER_CUH_
