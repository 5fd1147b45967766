// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_GEMM_TILES_H_
#define QTTS_CUDA_GEMM_TILES_H_

#include "gemm/arguments.h"

// Products in BF16 of hundreds of rows with the warpgroup's matrix instruction, on compute capability 9.0 alone. Both
// operands have the swizzled layout kSwizzled (swizzled.h) and are read from shared memory: a stage of a tile is two
// bulk copies. The swizzled weights are a second copy (Matrix::swizzled). Each row gets the bits of the other kernels:
// shares of the columns, k-steps and rounding are the same (rules/product.cuh).
//
// Each consumer warpgroup of a block computes tiles of 64 rows; the producer is one thread of a further warp.
namespace qtts::cuda::gemm {

// Returns true if products of the matrix can be done by tiles: the columns must be a multiple of 512 and the weight
// rows one of 64, and it must be of a kind that frames have many rows of.
bool HasTiles(const Matrix& matrix);
// Returns true if the product can run by tiles of `size` rows and weight rows, 64 or 128, on the current device.
bool CanRunTiles(int size, const Matrix& matrix, const GemmRows& rows);

// Runs a product by tiles. `scratch` has room for all columns of the rows, whose number is padded to a multiple of 8;
// it is not used where the rows are swizzled already.
void RunTiles(const Launcher& launch, const Matrix& matrix, int size, GemmArguments arguments,
              const NormedRows& scratch);

// Copies packed weights to `swizzled`, which has room for SwizzledBytes() of all weight rows.
void ArrangeWeights(const Launcher& launch, const Matrix& matrix, void* swizzled);

}  // namespace qtts::cuda::gemm

#endif  // QTTS_CUDA_GEMM_TILES_H_
