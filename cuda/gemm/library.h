// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_GEMM_LIBRARY_H_
#define QTTS_CUDA_GEMM_LIBRARY_H_

#include <cstdint>

#include "gemm/arguments.h"

// Products by NVIDIA's library (cublas_lt.h), in BF16: what comes before and after it. The library reads weights as
// plain rows, of all packed tiles, and gives sums in F32, to which it adds the residual stream. The norm before it is a
// kernel of ours, and rounds rows with the norm's factor, not before it; so are bias and activation behind it.
//
// LanguageModel chooses these products, for a whole engine: by default where there is no wgmma and more than kMaxRows
// voices.
namespace qtts::cuda::gemm {

// Unpacks a packed matrix to plain rows: [tiles * TileOutputs(kind)][whole chunks of columns]. The order of the rows
// stays: eight gates, then their eight ups.
void Unpack(const Launcher& launch, const Matrix& matrix, void* plain);

// Returns the weight rows of a matrix, which are the library's outputs.
inline int LibraryOutputs(const Matrix& matrix) { return matrix.tiles() * TileOutputs(matrix.kind); }

// Runs a product of a matrix with a `library`. `scratch` has room for the normed rows of the norm kinds, and for the
// sums of products with a bias or an activation.
void RunLibrary(const Launcher& launch, const Matrix& matrix, GemmArguments arguments, const NormedRows& scratch);

}  // namespace qtts::cuda::gemm

#endif  // QTTS_CUDA_GEMM_LIBRARY_H_
