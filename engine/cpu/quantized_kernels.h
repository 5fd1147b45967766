// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_QUANTIZED_KERNELS_H_
#define QTTS_CPU_QUANTIZED_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "cpu/instructions.h"
#include "cpu/kernels.h"

// Matrix products of quantised weights and activations. Sums within a group of columns are exact integers; across
// groups there is one F32 FMA per group, in order. A result therefore does not depend on the number of rows of a call,
// nor on the instruction set, except one without FMA (SSE).
//
// A weight is code * scale, with one BF16 scale per group. Groups lie along a row. 8-bit codes are -127 to 127, 4-bit
// codes -8 to 7.
//
// An activation is code * scale, with an F32 scale and a 16-bit code. 8-bit activations would lose more accuracy than
// 8-bit weights do, and the second multiplication is hidden behind the reads of the weights. The scale of a group with
// a value that is not finite is NaN, so that the results are NaN as in F32.
//
// Pure functions, thread-safe.
namespace qtts::cpu {

enum class CodeBits { k4, k8 };

// Returns the columns per scale.
constexpr int64_t GroupColumns(CodeBits bits) { return bits == CodeBits::k8 ? 64 : 32; }

// A weight matrix in panels of 16 rows. The last panel and the last group of each row are padded with zeros. 8-bit
// codes are stored as [panel][column / 4][row][4], one byte each, plus 128. 4-bit codes are stored as [panel][column /
// 8][row][4], plus 8: the low nibbles hold columns 0 to 3 of the eight, the high nibbles columns 4 to 7. Scales are
// [panel][group][row].
struct QuantizedView {
  CodeBits bits = CodeBits::k8;
  const uint8_t* codes = nullptr;
  const uint16_t* scales = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;

  int64_t groups() const { return (cols + GroupColumns(bits) - 1) / GroupColumns(bits); }
  int64_t panels() const { return (rows + kPanel - 1) / kPanel; }
  // Returns the bytes of codes and number of scales in one panel.
  int64_t panel_codes() const { return groups() * GroupColumns(bits) * kPanel / (bits == CodeBits::k8 ? 1 : 2); }
  int64_t panel_scales() const { return groups() * kPanel; }
};

// Quantises panels [begin, end) of `w` into `codes` and `scales`, in the layout of `view`, which has the size of `w`.
void QuantizeWeights(const MatrixView& w, const QuantizedView& view, int64_t begin, int64_t end, uint8_t* codes,
                     uint16_t* scales);

// Activations for products with weights that have one scale per `group` columns.
struct QuantizedRows {
  int64_t group = 0;
  int64_t groups = 0;  // per row
  // code = 256 high + low. [m][groups * group] each, the last group padded with zeros.
  const int8_t* high = nullptr;
  const int8_t* low = nullptr;
  const float* scales = nullptr;  // [m][groups]
  const int32_t* sums = nullptr;  // sum of the codes of each group, [m][groups]
};

// Code of the largest activation of a group: both bytes at their maximum.
inline constexpr int32_t kLargestCode = 127 * 256 + 127;

// Quantises one row x [cols].
void QuantizeRow(const float* x, int64_t cols, int64_t group, int8_t* high, int8_t* low, float* scales, int32_t* sums);

// Computes y[i][r] = bias[r] + sum over groups of (integer sum) * (w's scale * x's scale), for the rows r of panels
// [begin, end) and i < m; y is [m][w.rows]; `bias` [w.rows] may be null. A unit that Highway's target in use lacks
// counts as kPortable.
void QuantizedMatMul(const QuantizedView& w, const float* bias, const QuantizedRows& x, int64_t m, int64_t begin,
                     int64_t end, float* y, ByteUnit unit);

}  // namespace qtts::cpu

#endif  // QTTS_CPU_QUANTIZED_KERNELS_H_
