// SPDX-License-Identifier: LGPL-2.1-or-later
#include "persistent/frame_block.cuh"
#include "persistent/frame_kernel.h"
#include "persistent/frame_memory.cuh"
#include "persistent/frame_passes.cuh"
#include "persistent/frame_shape.cuh"
#include "persistent/weight_ring.cuh"
#include "persistent/weight_sender.cuh"

// The persistent kernel itself: its threads' parts, its variants, its launch. frame_block.cuh says how it works.
namespace qtts::cuda {
namespace persistent {
namespace {

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

using Kernel = void (*)(FrameKernelArguments);

struct Variant {
  Kernel kernel;
  size_t (*bytes)(int ring_slots);
};
template <int kTalkerHidden>
Variant VariantOf(int rows) {
  if (rows == 1) return {FrameKernel<kTalkerHidden, 1>, SharedBytes<kTalkerHidden, 1>};
  if (rows == 2) return {FrameKernel<kTalkerHidden, 2>, SharedBytes<kTalkerHidden, 2>};
  return {FrameKernel<kTalkerHidden, 4>, SharedBytes<kTalkerHidden, 4>};
}
Variant VariantOf(int talker_hidden, int rows) {
  return talker_hidden == kPersistentHidden ? VariantOf<kPersistentHidden>(rows)
                                            : VariantOf<kPersistentWideHidden>(rows);
}

}  // namespace
}  // namespace persistent

size_t FrameKernelBytes(int talker_hidden, int rows, int ring_slots) {
  return persistent::VariantOf(talker_hidden, rows).bytes(ring_slots);
}

cudaError_t PrepareFrameKernel(int talker_hidden, int rows, int ring_slots, int* blocks_per_processor) {
  const persistent::Variant variant = persistent::VariantOf(talker_hidden, rows);
  const auto* const kernel = reinterpret_cast<const void*>(variant.kernel);
  const size_t bytes = variant.bytes(ring_slots);
  cudaFuncAttributes attributes = {};
  cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  if (error != cudaSuccess) return error;
  // The driver made it from code for earlier ones.
  if (attributes.ptxVersion < 90) return cudaErrorNoKernelImageForDevice;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  // What it leaves is the codec's: only where processors have all their shared memory, not just what this one needs.
  if (error == cudaSuccess && rows == 1) {
    error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  }
  if (error != cudaSuccess) return error;
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks_per_processor, kernel, persistent::kThreads, bytes);
}

cudaError_t LaunchFrameKernel(const FrameKernelArguments& arguments, int rows, cudaStream_t stream) {
  const persistent::Variant variant = persistent::VariantOf(arguments.talker_hidden, rows);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(persistent::kBlocks);
  config.blockDim = dim3(persistent::kThreads);
  config.dynamicSmemBytes = variant.bytes(arguments.ring_slots);
  config.stream = stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, variant.kernel, arguments);
}

}  // namespace qtts::cuda
