// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_PATHS_PERSISTENT_WEIGHT_STORAGE_CUH_
#define QTTS_CUDA_PATHS_PERSISTENT_WEIGHT_STORAGE_CUH_

#include <cstdint>

#include "gemm/int8.cuh"
#include "gemm/int8.h"
#include "rules/chunk.h"
#include "rules/precision.h"
#include "runtime/fragment.h"

// How weights lie in a tile of the persistent kernel's products, and how a lane makes fragments of them.
namespace qtts::cuda::persistent {

// BF16, in the order of runtime/fragment.h: a chunk of 8 outputs is one unit of 16 bytes a lane. Chunks of 16 outputs
// are two of them, one after the other; a tile has its chunks in the order of columns.
struct Bf16Weights {
  static constexpr WeightForm kForm = WeightForm::kPlain;
  static constexpr int kTogetherChunks = 192;  // of 8 outputs, for which there are registers
  static constexpr float kSumFactor = 1;       // the product's sums are to be multiplied by
  static constexpr bool kLoadsHalves = true;   // Load() is for one half of a chunk of 16 outputs
  using Unit = uint4;                          // a lane's part of a chunk of 8 outputs, as it is kept until its product
  static constexpr int kChunkBytes = UnitFragment::kRows * UnitFragment::kColumns * 2;

  static constexpr int TileBytes(int columns, int outputs) { return outputs / 8 * (columns / kChunk) * kChunkBytes; }

  // Loads a lane's part of the chunk of 8 outputs at `chunk`, in shared memory.
  static __device__ __forceinline__ Unit Load(const char* chunk, int lane) {
    return *reinterpret_cast<const uint4*>(chunk + lane * static_cast<int>(sizeof(Unit)));
  }
  // Returns a word of what was loaded, for a wait for the load.
  static __device__ __forceinline__ uint32_t Word(const Unit& unit) { return unit.x; }
  // Returns the lane's part of the matrix instruction's left operand, of the chunk's half kHalf.
  template <int kHalf>
  static __device__ __forceinline__ uint4 Fragment(const Unit& unit) {
    return unit;
  }
};

// 8 bits (gemm/int8.h). They are unpacked at their product, to save registers until then.
struct Int8Weights {
  static constexpr WeightForm kForm = WeightForm::kInt8;
  static constexpr int kTogetherChunks = 256;
  static constexpr float kSumFactor = gemm::kInt8SumFactor;
  static constexpr bool kLoadsHalves = false;
  struct Unit {
    uint2 codes;
    uint32_t scales;  // of both halves, or of the only one
  };
  static constexpr int kChunkBytes = gemm::Int8Layout::kChunkBytes;

  static constexpr int TileBytes(int columns, int outputs) { return outputs / 8 * (columns / kChunk) * kChunkBytes; }

  // Loads a lane's part of the chunk of 8 or 16 outputs at `chunk`, in shared memory.
  static __device__ __forceinline__ void Load(const char* chunk, int lane, Unit (&units)[1]) {
    units[0].codes = *reinterpret_cast<const uint2*>(chunk + lane * static_cast<int>(sizeof(uint2)));
    units[0].scales = reinterpret_cast<const uint16_t*>(chunk + gemm::Int8Layout::kCodeBytes)[lane / 4];
  }
  static __device__ __forceinline__ void Load(const char* chunk, int lane, Unit (&units)[2]) {
    const auto codes = *reinterpret_cast<const uint4*>(chunk + lane * static_cast<int>(sizeof(uint4)));
    units[0].codes = {codes.x, codes.y};
    units[1].codes = {codes.z, codes.w};
    units[0].scales = reinterpret_cast<const uint32_t*>(chunk + 2 * gemm::Int8Layout::kCodeBytes)[lane / 4];
    units[1].scales = units[0].scales;
  }
  static __device__ __forceinline__ uint32_t Word(const Unit& unit) { return unit.codes.x & unit.scales; }
  template <int kHalf>
  static __device__ __forceinline__ uint4 Fragment(const Unit& unit) {
    return gemm::UnpackReducedInt8(
        unit.codes, kHalf == 0 ? gemm::LowReducedInt8Factor(unit.scales) : gemm::HighReducedInt8Factor(unit.scales));
  }
};

}  // namespace qtts::cuda::persistent

#endif  // QTTS_CUDA_PATHS_PERSISTENT_WEIGHT_STORAGE_CUH_
