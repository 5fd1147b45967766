// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_BF16_KERNELS_H_
#define QTTS_CPU_BF16_KERNELS_H_

#include <cstdint>

// Matrix products of BF16 weights and BF16 activations, summed in F32 by the AVX512_BF16 instructions. A result does
// not depend on the number of rows of the call. Pure functions, thread-safe.
namespace qtts::cpu {

// Returns true if this CPU has AVX512_BF16. The other functions of this header require it.
bool HasBF16Products();

// Computes y[i] = x[i] as BF16, rounded to nearest, ties to even.
void ToBF16(const float* x, int64_t n, uint16_t* y);

// Computes y[i][r] = bias[r] + sum over c of w[r][c] x[i][c], for the rows r in [begin, end) and i < m. w is
// [rows][cols], x [m][cols], y [m][rows]; `bias` [rows] may be null.
void BF16MatMul(const uint16_t* w, int64_t rows, int64_t cols, const float* bias, const uint16_t* x, int64_t m,
                int64_t begin, int64_t end, float* y);

}  // namespace qtts::cpu

#endif  // QTTS_CPU_BF16_KERNELS_H_
