// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_QUANTIZED_CONV_KERNELS_H_
#define QTTS_CPU_QUANTIZED_CONV_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cpu/instructions.h"
#include "cpu/kernels.h"

// Convolutions with 8-bit or BF16 products, and the conversion of their inputs. As in kernels.h, each value is computed
// in one order that depends on the sizes of one row only. Pure functions, thread-safe.
namespace qtts::cpu {

enum class ProductType {
  // 8-bit weights and inputs, sums in 32-bit integers: the same integers on every instruction set. A value is scale *
  // q. There is one scale per output channel of the weights and one per input row; each is the largest magnitude / 127.
  kInt8,
  // Weights and inputs rounded to BF16, sums in F32. Without HasBF16Products() the results have the same accuracy and
  // take as long as F32.
  kBF16,
};

// Instructions to use. Determined once per convolution, not per call.
struct ProductUnits {
  ByteUnit bytes = ByteUnit::kPortable;
  bool bf16 = false;  // the CPU's BF16 dot product
};

// Returns the best units of this machine for Highway's target in use.
ProductUnits BestProductUnits();

// y = x + inverse_b * sin^2(pi * turns * x) per channel: SnakeBeta() with turns = a / pi. The error is below 1e-6 *
// inverse_b, plus the rounding of the angle.
struct SnakeView {
  const float* turns = nullptr;  // [channels]
  const float* inverse_b = nullptr;
};
void FastSnake(const SnakeView& snake, const float* x, int64_t rows, int64_t channels, float* y);

// Returns true if F16 loads are at least as fast as F32 loads.
bool HasHalfLoads();

// Rounds n weights to F16. Returns false if one is too large for F16. Requires HasHalfLoads().
bool NarrowToHalf(const float* x, int64_t n, uint16_t* y);

// A causal convolution over rows in the format of PrepareRows(). Weights are stored as [panel][tap][step][kPanel][4
// bytes], padded with zeros. A step is 4 (kInt8) or 2 (kBF16) consecutive inputs, whose products are summed at once.
// kInt8 weights are stored as q + 128. Scales and bias are [panels * kPanel].
struct ProductConvView {
  ProductType type = ProductType::kInt8;
  const std::byte* weights = nullptr;
  const float* scales = nullptr;  // kInt8 only
  const float* bias = nullptr;
  int64_t in = 0;
  int64_t out = 0;
  int64_t taps = 0;
  int64_t dilation = 1;

  int64_t panels() const { return (out + kPanel - 1) / kPanel; }
  int64_t steps() const { return type == ProductType::kInt8 ? (in + 3) / 4 : (in + 1) / 2; }
  int64_t panel_bytes() const { return taps * steps() * kPanel * 4; }
  int64_t row_bytes() const { return 4 * steps() + (type == ProductType::kInt8 ? kInt8Header : 0); }

  // Header of an int8 row: its scale, then -128 times the sum of its q, which cancels the offset of the weights.
  static constexpr int64_t kInt8Header = 8;
};

// Largest number of inputs of a kInt8 convolution: the sum of one tap must fit 32 bits.
inline constexpr int64_t kMostInt8Inputs = 32768;

// Packs the weights of one output, values [taps][in], into `weights` and, for kInt8, scales[output]. A weight that is
// not finite makes the output NaN.
void PackOutput(const ProductConvView& view, int64_t output, const float* values, std::byte* weights, float* scales);

// Converts rows to the input format of `view`: x [rows][view.in] -> y [rows][view.row_bytes()]. With `snake`,
// FastSnake(x) is applied first. A value that is not finite makes every output of its row NaN, or acts as an infinity
// does in F32.
void PrepareRows(const ProductConvView& view, const SnakeView* snake, const float* x, int64_t rows, std::byte* y);

// Computes the same as Conv() for x [rows + (taps - 1) * dilation][row_bytes()].
//   kInt8: y = fma(total, scale of the output, bias); total = fma(sum of a tap, scale of its row, total), tap by tap
//     from zero. (Without FMA instructions: multiplied, then added.)
//   kBF16: y = sums over all taps and inputs + bias.
void ProductConv(const ProductConvView& view, const std::byte* x, int64_t rows, int64_t begin, int64_t end,
                 bool accumulate, float* y, const ProductUnits& units);

}  // namespace qtts::cpu

#endif  // QTTS_CPU_QUANTIZED_CONV_KERNELS_H_
