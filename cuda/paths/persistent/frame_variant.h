// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_FRAME_VARIANT_H_
#define QTTS_CUDA_PATHS_PERSISTENT_FRAME_VARIANT_H_

#include <cstddef>

#include "paths/persistent/frame_kernel.h"

// The persistent kernel for one width of the talker and one number of rows, folded or not (FrameKernelForm).
namespace qtts::cuda::persistent {

struct Variant {
  void (*kernel)(FrameKernelArguments);
  size_t bytes;  // shared memory without the ring
  int min_bulk_slots, min_async_slots;
};

// Returns the kernel for 1, 2, 4 or 8 rows and one of kPersistentTalkerWidths, in frame_kernel_width.cu.
template <int kTalkerHidden, bool kFolded>
Variant VariantOf(int rows);

// Returns the kernel for one row with weights of 8 bits, in frame_kernel_int8.cu.
template <int kTalkerHidden, bool kFolded>
Variant Int8VariantOf();

}  // namespace qtts::cuda::persistent

#endif  // QTTS_CUDA_PATHS_PERSISTENT_FRAME_VARIANT_H_
