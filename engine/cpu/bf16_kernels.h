// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_BF16_KERNELS_H_
#define QTTS_CPU_BF16_KERNELS_H_

#include <cstdint>

// Matrix products of BF16 weights and activations, summed in F32 by the processor's own instruction, where it has one
// (AVX512_BF16). A result does not depend on how many rows are computed together. Pure functions, thread-safe.
namespace qtts::cpu {

// Whether the other functions of this header may be called.
bool HasBF16Products();

// y[i] = x[i] as BF16, rounded to the nearest, ties to even.
void ToBF16(const float* x, int64_t n, uint16_t* y);

// y[i][r] = bias[r] + sum over c of w[r][c] x[i][c], for the rows r in [begin, end) and i < m. w is [rows][cols],
// x [m][cols], y [m][rows]; `bias` [rows] may be null.
void BF16MatMul(const uint16_t* w, int64_t rows, int64_t cols, const float* bias, const uint16_t* x, int64_t m,
                int64_t begin, int64_t end, float* y);

}  // namespace qtts::cpu

#endif  // QTTS_CPU_BF16_KERNELS_H_
