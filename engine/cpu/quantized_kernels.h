// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_QUANTIZED_KERNELS_H_
#define QTTS_CPU_QUANTIZED_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cpu/kernels.h"

// Matrix products of quantised weights and activations: integers within a group of columns, whose sums are exact, and
// one F32 fused multiply-add for each group, in order. So a result depends neither on the instruction set (but for
// those without fused multiply-add: SSE) nor on how many rows are computed together.
//
// A weight is code * scale, a group's scale in BF16; groups lie along a row. Codes of 8 bits are -127 to 127, of 4 bits
// -8 to 7. An activation is code * scale with a scale in F32 and a code of two bytes: with one, activations would cost
// more exactness than weights of 8 bits do, and reading the weights takes longer than multiplying them twice. A group
// that holds a number that is not finite gets NaN for a scale, so that what depends on it is NaN, as it would be in
// F32.
//
// Pure functions, thread-safe.
namespace qtts::cpu {

// The instruction set in use for these.
std::string QuantizedInstructionSet();

// Those compiled in that this machine can run, as Highway's target bits. For tests.
std::vector<int64_t> QuantizedTargets();

enum class CodeBits { k4, k8 };

// Columns with one scale.
constexpr int64_t GroupColumns(CodeBits bits) { return bits == CodeBits::k8 ? 64 : 32; }

// A weight matrix: panels of 16 rows, the last filled up with zeros, as is each row's last group. Codes lie as
// [panel][column / 4][row][4], a byte each, plus 128; those of 4 bits as [panel][column / 8][row][4], plus 8, a byte's
// lower half being column 0 to 3 of the eight and its upper half 4 to 7. Scales as [panel][group][row].
struct QuantizedView {
  CodeBits bits = CodeBits::k8;
  const uint8_t* codes = nullptr;
  const uint16_t* scales = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;

  int64_t groups() const { return (cols + GroupColumns(bits) - 1) / GroupColumns(bits); }
  int64_t panels() const { return (rows + kPanel - 1) / kPanel; }
  // Bytes of codes, and number of scales, of one panel.
  int64_t panel_codes() const { return groups() * GroupColumns(bits) * kPanel / (bits == CodeBits::k8 ? 1 : 2); }
  int64_t panel_scales() const { return groups() * kPanel; }
};

// Fills codes and scales of panels [begin, end), laid out as `view` says, from `w`, a matrix of the same size.
void QuantizeWeights(const MatrixView& w, const QuantizedView& view, int64_t begin, int64_t end, uint8_t* codes,
                     uint16_t* scales);

// Activations for products with weights of `group` columns a scale.
struct QuantizedRows {
  int64_t group = 0;
  int64_t groups = 0;  // of a row
  // A code is 256 high + low. [m][groups * group] each, the last group filled up with zeros.
  const int8_t* high = nullptr;
  const int8_t* low = nullptr;
  const float* scales = nullptr;  // [m][groups]
  const int32_t* sums = nullptr;  // of the codes of a group, [m][groups]
};

// The largest code of an activation, which a group's largest gets: that of the two largest bytes.
inline constexpr int32_t kLargestCode = 127 * 256 + 127;

// One row of them from x [cols].
void QuantizeRow(const float* x, int64_t cols, int64_t group, int8_t* high, int8_t* low, float* scales, int32_t* sums);

// y[i][r] = bias[r] + sum over groups of (integer sum) * (w's scale * x's scale), for the rows r of panels [begin, end)
// and i < m; y is [m][w.rows]; `bias` [w.rows] may be null.
void QuantizedMatMul(const QuantizedView& w, const float* bias, const QuantizedRows& x, int64_t m, int64_t begin,
                     int64_t end, float* y);

}  // namespace qtts::cpu

#endif  // QTTS_CPU_QUANTIZED_KERNELS_H_
