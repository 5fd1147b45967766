// SPDX-License-Identifier: LGPL-2.1-or-later
#include <cstddef>
#include <utility>

#include "paths/persistent/frame_kernel.h"
#include "paths/persistent/frame_shape.cuh"
#include "paths/persistent/frame_variant.h"
#include "runtime/launch.h"

// Which variant of the persistent kernel is used, and its launch.
namespace qtts::cuda {
namespace {

template <size_t... kIndices>
persistent::Variant FindVariant(int talker_hidden, int rows, std::index_sequence<kIndices...> /*widths*/) {
  persistent::Variant variant = {};
  const auto take = [&](int width, persistent::Variant (*variant_of)(int)) {
    if (width == talker_hidden) variant = variant_of(rows);
  };
  (take(kPersistentTalkerWidths[kIndices], persistent::VariantOf<kPersistentTalkerWidths[kIndices]>), ...);
  return variant;
}

persistent::Variant VariantOf(int talker_hidden, int rows) {
  return FindVariant(talker_hidden, rows, std::make_index_sequence<kPersistentTalkerWidths.size()>());
}

}  // namespace

size_t FrameKernelBytes(int talker_hidden, int rows, int ring_slots) {
  return VariantOf(talker_hidden, rows).bytes(ring_slots);
}

cudaError_t PrepareFrameKernel(int talker_hidden, int rows, int ring_slots, int* blocks_per_processor) {
  const persistent::Variant variant = VariantOf(talker_hidden, rows);
  const auto* const kernel = reinterpret_cast<const void*>(variant.kernel);
  const size_t bytes = variant.bytes(ring_slots);
  cudaError_t error = AllowSharedMemory(variant.kernel, bytes);
  // The codec runs beside it in the rest of the shared memory, which exists only if SMs are configured for all of it
  // and not just for the need of this kernel.
  if (error == cudaSuccess && rows == 1) error = PreferSharedMemory(variant.kernel);
  if (error != cudaSuccess) return error;
  if (CountsMemory()) {
    *blocks_per_processor = 1;
    return cudaSuccess;
  }
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks_per_processor, kernel, persistent::kThreads, bytes);
}

cudaError_t LaunchFrameKernel(const FrameKernelArguments& arguments, int rows, cudaStream_t stream) {
  const persistent::Variant variant = VariantOf(arguments.talker_hidden, rows);
  return LaunchKernel(variant.kernel, dim3(persistent::kBlocks), persistent::kThreads,
                      variant.bytes(arguments.ring_slots), stream, {.cooperative = true}, arguments);
}

}  // namespace qtts::cuda
