// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>
#include <cstddef>
#include <utility>

#include "paths/persistent/frame_kernel.h"
#include "paths/persistent/frame_shape.cuh"
#include "paths/persistent/frame_variant.h"
#include "runtime/launch.h"

// Which variant of the persistent kernel is used, and its launch.
namespace qtts::cuda {
namespace {

// More would only take shared memory from kernels that run beside.
constexpr int kMaxRingBytes = 128 << 10;

template <size_t... kIndices>
persistent::Variant FindVariant(const FrameKernelForm& form, std::index_sequence<kIndices...> /*widths*/) {
  persistent::Variant variant = {};
  const auto take = [&](int width, persistent::Variant (*plain)(int), persistent::Variant (*folded)(int),
                        persistent::Variant (*plain_int8)(), persistent::Variant (*folded_int8)()) {
    if (width != form.talker_hidden) return;
    if (form.weights == WeightForm::kInt8) {
      variant = (form.folded ? folded_int8 : plain_int8)();
    } else {
      variant = (form.folded ? folded : plain)(form.rows);
    }
  };
  (take(kPersistentTalkerWidths[kIndices], persistent::VariantOf<kPersistentTalkerWidths[kIndices], false>,
        persistent::VariantOf<kPersistentTalkerWidths[kIndices], true>,
        persistent::Int8VariantOf<kPersistentTalkerWidths[kIndices], false>,
        persistent::Int8VariantOf<kPersistentTalkerWidths[kIndices], true>),
   ...);
  return variant;
}

persistent::Variant VariantOf(const FrameKernelForm& form) {
  return FindVariant(form, std::make_index_sequence<kPersistentTalkerWidths.size()>());
}

}  // namespace

size_t FrameKernelBytes(const FrameKernelForm& form) {
  return VariantOf(form).bytes + static_cast<size_t>(form.ring_slots) * PersistentPieceBytes(form.copies, form.weights);
}

int MinRingSlots(const FrameKernelForm& form) {
  const persistent::Variant variant = VariantOf(form);
  return form.copies == RingCopies::kBulk ? variant.min_bulk_slots : variant.min_async_slots;
}

FrameKernelForm ChooseForm(int talker_hidden, int rows, RingCopies copies, int processors, size_t shared_limit,
                           bool folded_only, WeightForm weights) {
  FrameKernelForm form = {.talker_hidden = talker_hidden, .rows = rows, .copies = copies, .weights = weights};
  if (weights == WeightForm::kInt8 && rows != 1) return form;
  // Bulk copies are Hopper's, whose SMs have room.
  const bool leaves = copies == RingCopies::kAsync && !folded_only;
  const int blocks = persistent::ChooseBlocks(
      processors - (leaves ? persistent::ProcessorsForCodec(talker_hidden, rows, processors) : 0));
  const auto piece = static_cast<size_t>(PersistentPieceBytes(copies, weights));
  for (const bool folded : {false, true}) {
    if (blocks == 0 || (!folded && (folded_only || blocks != kPersistentMaxBlocks))) continue;
    form.folded = folded;
    form.ring_slots = 0;
    const size_t fixed = FrameKernelBytes(form);
    const size_t slots = shared_limit < fixed ? 0 : (shared_limit - fixed) / piece;
    form.ring_slots = static_cast<int>(std::min(slots, kMaxRingBytes / piece));
    // An even number has two copying warps.
    if (copies == RingCopies::kAsync && form.ring_slots > MinRingSlots(form)) form.ring_slots -= form.ring_slots % 2;
    if (form.ring_slots < MinRingSlots(form)) continue;
    form.blocks = blocks;
    return form;
  }
  return form;
}

cudaError_t PrepareFrameKernel(const FrameKernelForm& form, int* blocks_per_processor) {
  const persistent::Variant variant = VariantOf(form);
  const auto* const kernel = reinterpret_cast<const void*>(variant.kernel);
  const size_t bytes = FrameKernelBytes(form);
  cudaError_t error = AllowSharedMemory(variant.kernel, bytes);
  // The codec runs beside it in the rest of the shared memory, which exists only if SMs are configured for all of it
  // and not just for the need of this kernel.
  if (error == cudaSuccess && form.rows == 1) error = PreferSharedMemory(variant.kernel);
  if (error != cudaSuccess) return error;
  if (CountsMemory()) {
    *blocks_per_processor = 1;
    return cudaSuccess;
  }
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks_per_processor, kernel, persistent::kThreads, bytes);
}

cudaError_t LaunchFrameKernel(FrameKernelArguments arguments, const FrameKernelForm& form, cudaStream_t stream) {
  arguments.ring_slots = form.ring_slots;
  return LaunchKernel(VariantOf(form).kernel, dim3(static_cast<unsigned>(form.blocks)), persistent::kThreads,
                      FrameKernelBytes(form), stream, {.cooperative = true}, arguments);
}

}  // namespace qtts::cuda
