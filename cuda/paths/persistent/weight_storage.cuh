// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_WEIGHT_STORAGE_CUH_
#define QTTS_CUDA_PATHS_PERSISTENT_WEIGHT_STORAGE_CUH_

#include <cstdint>

#include "rules/chunk.h"
#include "runtime/fragment.h"

// How weights lie in a tile of the persistent kernel's products, and how a lane makes fragments of them.
namespace qtts::cuda::persistent {

// BF16, in the order of runtime/fragment.h: a chunk of 8 outputs is one unit of 16 bytes a lane. Chunks of 16 outputs
// are two of them, one after the other; a tile has its chunks in the order of columns.
struct Bf16Weights {
  using Unit = uint4;  // a lane's part of a chunk of 8 outputs, as it is kept until its product
  static constexpr int kChunkBytes = UnitFragment::kRows * UnitFragment::kColumns * 2;

  static constexpr int TileBytes(int columns, int outputs) { return outputs / 8 * (columns / kChunk) * kChunkBytes; }

  // Loads a lane's part of the chunk at `chunk`, in shared memory.
  static __device__ __forceinline__ Unit Load(const char* chunk, int lane) {
    return *reinterpret_cast<const uint4*>(chunk + lane * static_cast<int>(sizeof(Unit)));
  }
  // A word of what was loaded, for a wait for the load.
  static __device__ __forceinline__ uint32_t Word(const Unit& unit) { return unit.x; }
  // The lane's part of the matrix instruction's left operand.
  static __device__ __forceinline__ uint4 Fragment(const Unit& unit) { return unit; }
};

}  // namespace qtts::cuda::persistent

#endif  // QTTS_CUDA_PATHS_PERSISTENT_WEIGHT_STORAGE_CUH_
