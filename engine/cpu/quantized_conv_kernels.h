// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_QUANTIZED_CONV_KERNELS_H_
#define QTTS_CPU_QUANTIZED_CONV_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cpu/kernels.h"

// Convolutions whose products are of bytes or of BF16 pairs, and what brings their inputs into that form. The rules of
// kernels.h hold: every value is computed in one order that depends on the sizes of one row only, pure functions.
namespace qtts::cpu {

enum class ProductType {
  // Weights and inputs of 8 bits, sums in 32-bit integers: the same integers on every instruction set. A weight is
  // scale * q with a scale for each output channel, an input scale * q with one for each row; both scales are the
  // largest magnitude over 127.
  kInt8,
  // Weights and inputs rounded to BF16, sums in F32. Without HasBF16Products() results of the same accuracy at the cost
  // of F32.
  kBF16,
};

// The instructions that sum products of bytes. All give the same integers.
enum class ByteUnit {
  kPortable,    // products of 16-bit pairs, or of what the instruction set has
  kAvxVnni,     // vpdpbusd of 256 bits, without AVX-512
  kAvx512Vnni,  // vpdpbusd of 512 bits
};

// What multiplies. To ask the processor takes long on a virtual machine: once for each convolution, not for each call.
struct ProductUnits {
  ByteUnit bytes = ByteUnit::kPortable;
  bool bf16 = false;  // the processor's products of BF16
};

// The best of this machine; tests restrict it by restricting Highway's targets.
ProductUnits BestProductUnits();

// y = x + inverse_b * sin^2(pi * turns * x) channel by channel: SnakeBeta() with turns = a / pi, and an error below
// 1e-6 * inverse_b and what the rounding of the angle makes.
struct SnakeView {
  const float* turns = nullptr;  // [channels]
  const float* inverse_b = nullptr;
};
void FastSnake(const SnakeView& snake, const float* x, int64_t rows, int64_t channels, float* y);

// Whether F16 is read as fast as F32 or faster.
bool HasHalfLoads();

// Rounds n weights to F16; false if one is too large for it. Where HasHalfLoads().
bool NarrowToHalf(const float* x, int64_t n, uint16_t* y);

// A causal convolution over rows that PrepareRows() made. Weights lie as [panel][tap][step][kPanel][4 bytes], a step
// being the four or two neighbouring inputs whose products are summed at once, filled up with zeros; of int8, as
// q + 128. Scales and bias lie as [panels * kPanel].
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

  // Of an int8 row: its scale, then -128 times the sum of its q, which takes the 128 of the weights away.
  static constexpr int64_t kInt8Header = 8;
};

// Largest number of inputs of a kInt8 convolution: the sums of a tap must fit 32 bits.
inline constexpr int64_t kMostInt8Inputs = 32768;

// Packs the weights of one output, values [taps][in], into `weights` and, of int8, scales[output]. A weight that is not
// finite makes the output NaN.
void PackOutput(const ProductConvView& view, int64_t output, const float* values, std::byte* weights, float* scales);

// Rows as the convolutions of `view` take them: x [rows][view.in] -> y [rows][view.row_bytes()]. With `snake`, of
// FastSnake(x). A value that is not finite makes all that its row goes into NaN, or as an infinity does in F32.
void PrepareRows(const ProductConvView& view, const SnakeView* snake, const float* x, int64_t rows, std::byte* y);

// As Conv(), for x [rows + (taps - 1) * dilation][row_bytes()].
//   kInt8: y = fma(total, scale of the output, bias); total = fma(sum of a tap, scale of its row, total), tap by tap
//     from zero. (Without FMA instructions: multiplied, then added.)
//   kBF16: y = sums over all taps and inputs + bias.
void ProductConv(const ProductConvView& view, const std::byte* x, int64_t rows, int64_t begin, int64_t end,
                 bool accumulate, float* y, const ProductUnits& units);

}  // namespace qtts::cpu

#endif  // QTTS_CPU_QUANTIZED_CONV_KERNELS_H_
