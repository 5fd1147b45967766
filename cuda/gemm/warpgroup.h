// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_GEMM_WARPGROUP_H_
#define QTTS_CUDA_GEMM_WARPGROUP_H_

#include "gemm/arguments.h"

// Products in BF16 for many rows with the warpgroup's matrix instruction, on compute capability 9.0 alone. Each row
// gets the bits that the kernels for few rows would give it: shares of the columns and k-steps are the same
// (rules/product.cuh, swizzled.h), and the instruction rounds like that of a warp.
//
// A block computes tiles of 64 outputs for each of its warpgroups. Weights are the other kernels', as they are packed.
// Rows are first brought into the order kSwizzled, in scratch memory, by a kernel of their own: the norm, or a copy.
// Both come to shared memory in a ring of stages of 64 columns that four warps fill.
namespace qtts::cuda::gemm {

struct WarpgroupTile {
  int warpgroups;  // of a block, 64 outputs each
  int rows;
  // How the blocks of a cluster work together.
  enum class Blocks {
    kAlone,
    kSplit,  // eight with the same tile: each sums one share of the columns
  } blocks;
};

// True if a product of this kind can run with `tile` on the current device. The columns must be a multiple of 512,
// for shares of whole stages; kSplit is for kAdd. A build without code for 9.0 (cuda-arch) has none of them.
bool CanRunWarpgroup(const WarpgroupTile& tile, GemmKind kind, int columns);

// Runs a product by warpgroups. `scratch` has room for all columns of the rows, whose number is filled up to a multiple
// of 8.
void RunWarpgroup(const Launcher& launch, GemmKind kind, const WarpgroupTile& tile, GemmArguments arguments,
                  const NormedRows& scratch);

// Sizes of a tile's launch, for tests.
struct WarpgroupLaunch {
  int64_t row_tiles, output_tiles;
  unsigned blocks;
  int threads, stages;
  size_t shared_bytes;
};
WarpgroupLaunch PlanWarpgroup(const WarpgroupTile& tile, GemmKind kind, int outputs, int64_t rows, int processors);

}  // namespace qtts::cuda::gemm

#endif  // QTTS_CUDA_GEMM_WARPGROUP_H_
