// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/quantized_kernels.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "cpu/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/quantized_kernels.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// Must follow foreach_target.h.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "cpu/byte_products-inl.h"
#include "cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qtts::cpu::HWY_NAMESPACE {

constexpr auto kVectors = static_cast<int>(kPanel / kLanes);

// Returns four codes of the activations, the same in every lane.
template <class Products>
HWY_INLINE typename Products::Inputs Spread(const int8_t* codes) {
  int32_t four = 0;
  memcpy(&four, codes, sizeof(four));
  return Products::OfInputs(hn::Set(I32(), four));
}

// Prefetch distance of 4-bit codes, in bytes. 8-bit codes are left to the hardware's prefetchers: with prefetches, a
// core of an AMD EPYC reads them at 23 GB/s instead of 30; 4-bit codes at 31 GB/s instead of 25.
constexpr int64_t kPrefetchBytes = 4096;

// Loads vector `v` of the codes of step `step`: four columns of a panel's rows, counted from `codes`.
template <class Products, CodeBits kBits>
HWY_INLINE typename Products::Weights LoadCodes(const uint8_t* codes, int64_t step, int v) {
  if constexpr (kBits == CodeBits::k8) {
    return Products::OfWeights(
        hn::LoadU(I32(), reinterpret_cast<const int32_t*>(codes + step * kPanel * 4) + v * kLanes));
  } else {
    // One byte holds codes of two steps.
    const VI both = hn::LoadU(I32(), reinterpret_cast<const int32_t*>(codes + step / 2 * kPanel * 4) + v * kLanes);
    return Products::OfWeights(hn::And(step % 2 == 0 ? both : hn::ShiftRight<4>(both), hn::Set(I32(), 0x0F0F0F0F)));
  }
}

template <class Products>
constexpr bool kHasUnit = Products::kUnit != ByteUnit::kPortable;

// Multiplies kCount inputs by the rows of kPanels panels, starting at `panel`. The steps of an unrolled loop add to
// separate sums, to shorten the dependency chains.
template <class Products, CodeBits kBits, int kCount, int kPanels>
HWY_INLINE void PanelTile(const QuantizedView& w, int64_t panel, const QuantizedRows& x, int64_t row, V* totals) {
  constexpr int64_t kGroup = GroupColumns(kBits);
  // Bytes of one step (four columns), and steps per iteration.
  constexpr int64_t kStepBytes = kBits == CodeBits::k8 ? kPanel * 4 : kPanel * 2;
  constexpr int64_t kSteps = kLanes >= 8 ? 4 : 2;
  // Independent sums per input, each for the high and the low bytes.
  constexpr int kChains = (kLanes >= 16 || (kLanes >= 8 && kHasUnit<Products>)) && kCount == 1 ? 2 : 1;
  // Offset of the codes still to correct.
  constexpr int32_t kShift = (kBits == CodeBits::k4 ? 8 : 128) - (Products::kSignedWeights ? 128 : 0);
  constexpr int kAll = kPanels * kVectors;
  const int64_t stride = x.groups * kGroup;
  const int64_t panel_codes = w.panel_codes();
  const int64_t panel_scales = w.panel_scales();
  const uint8_t* codes = w.codes + panel * panel_codes;
  const uint16_t* const scales = w.scales + panel * panel_scales;
  for (int64_t g = 0; g < x.groups; ++g) {
    VI high[kCount][kChains][kAll];
    VI low[kCount][kChains][kAll];
    HWY_UNROLL(16) for (int i = 0; i < kCount; ++i) {
      const VI start = hn::Set(I32(), -kShift * x.sums[(row + i) * x.groups + g]);
      HWY_UNROLL(4) for (int c = 0; c < kChains; ++c) {
        HWY_UNROLL(16) for (int v = 0; v < kAll; ++v) {
          high[i][c][v] = hn::Zero(I32());
          low[i][c][v] = c == 0 ? start : hn::Zero(I32());
        }
      }
    }
    const int8_t* const high_codes = x.high + row * stride + g * kGroup;
    const int8_t* const low_codes = x.low + row * stride + g * kGroup;
    for (int64_t k = 0; k < kGroup / 4; k += kSteps, codes += kSteps * kStepBytes) {
      if constexpr (kBits == CodeBits::k4) {
        HWY_UNROLL(2) for (int p = 0; p < kPanels; ++p) {
          hwy::Prefetch(codes + p * panel_codes + kPrefetchBytes);
          if constexpr (kSteps * kStepBytes > 64) hwy::Prefetch(codes + p * panel_codes + kPrefetchBytes + 64);
        }
      }
      HWY_UNROLL(4) for (int64_t step = 0; step < kSteps; ++step) {
        typename Products::Weights ws[kAll];
        HWY_UNROLL(16) for (int v = 0; v < kAll; ++v) {
          ws[v] = LoadCodes<Products, kBits>(codes + v / kVectors * panel_codes, step, v % kVectors);
        }
        HWY_UNROLL(16) for (int i = 0; i < kCount; ++i) {
          const typename Products::Inputs highs = Spread<Products>(high_codes + i * stride + (k + step) * 4);
          const typename Products::Inputs lows = Spread<Products>(low_codes + i * stride + (k + step) * 4);
          HWY_UNROLL(16) for (int v = 0; v < kAll; ++v) {
            VI& to_high = high[i][step % kChains][v];
            VI& to_low = low[i][step % kChains][v];
            to_high = Products::Add(to_high, ws[v], highs);
            to_low = Products::Add(to_low, ws[v], lows);
          }
        }
      }
    }
    HWY_UNROLL(16) for (int v = 0; v < kAll; ++v) {
      const hn::Rebind<hwy::bfloat16_t, F32> bf16;
      const uint16_t* const from = scales + v / kVectors * panel_scales + g * kPanel + v % kVectors * kLanes;
      const V scale = hn::PromoteTo(F32(), hn::LoadU(bf16, reinterpret_cast<const hwy::bfloat16_t*>(from)));
      HWY_UNROLL(16) for (int i = 0; i < kCount; ++i) {
        VI high_sum = high[i][0][v];
        VI low_sum = low[i][0][v];
        HWY_UNROLL(4) for (int c = 1; c < kChains; ++c) {
          high_sum = hn::Add(high_sum, high[i][c][v]);
          low_sum = hn::Add(low_sum, low[i][c][v]);
        }
        // The parts may overflow 32 bits; their sum does not.
        const VI whole = hn::Add(hn::ShiftLeft<8>(high_sum), low_sum);
        const V factor = hn::Mul(scale, hn::Set(F32(), x.scales[(row + i) * x.groups + g]));
        totals[i * kAll + v] = hn::MulAdd(hn::ConvertTo(F32(), whole), factor, totals[i * kAll + v]);
      }
    }
  }
}

// Runs inputs [row, m), kCount at a time, then fewer, times kPanels panels.
template <class Products, CodeBits kBits, int kCount, int kPanels>
HWY_INLINE void PanelInputs(const QuantizedView& w, int64_t panel, const float* bias, const QuantizedRows& x,
                            int64_t row, int64_t m, float* y) {
  constexpr int kAll = kPanels * kVectors;
  for (; row + kCount <= m; row += kCount) {
    V totals[kCount * kAll];
    for (V& total : totals) total = hn::Zero(F32());
    PanelTile<Products, kBits, kCount, kPanels>(w, panel, x, row, totals);
    const int64_t first = panel * kPanel;
    const int64_t count = std::min(kPanels * kPanel, w.rows - first);
    for (int i = 0; i < kCount; ++i) {
      alignas(64) float sums[kPanels * kPanel];
      for (int v = 0; v < kAll; ++v) hn::StoreU(totals[i * kAll + v], F32(), sums + v * kLanes);
      float* const to = y + (row + i) * w.rows + first;
      if (bias != nullptr) {
        for (int64_t r = 0; r < count; ++r) to[r] = sums[r] + bias[first + r];
      } else {
        std::copy_n(sums, count, to);
      }
    }
  }
  if constexpr (kCount > 1) PanelInputs<Products, kBits, kCount / 2, kPanels>(w, panel, bias, x, row, m, y);
}

// Takes as many inputs and panels at a time as keep all sums in registers. Two panels share the loads of the inputs,
// which pays for many inputs. For few inputs, one panel after the other reads weights from memory faster.
template <class Products, CodeBits kBits>
void QuantizedMatMulAs(const QuantizedView& w, const float* bias, const QuantizedRows& x, int64_t m, int64_t begin,
                       int64_t end, float* y) {
  constexpr int kMaxInputs = kLanes >= 16 ? 4 : kHasUnit<Products> ? 2 : 1;
  constexpr int kMaxPanels = kLanes >= 16 ? 2 : 1;
  int64_t panel = begin;
  for (; m >= kMaxInputs && panel + kMaxPanels <= end; panel += kMaxPanels) {
    PanelInputs<Products, kBits, kMaxInputs, kMaxPanels>(w, panel, bias, x, 0, m, y);
  }
  for (; panel < end; ++panel) PanelInputs<Products, kBits, kMaxInputs, 1>(w, panel, bias, x, 0, m, y);
}

template <class Products>
void QuantizedMatMulWith(const QuantizedView& w, const float* bias, const QuantizedRows& x, int64_t m, int64_t begin,
                         int64_t end, float* y) {
  if (w.bits == CodeBits::k8) return QuantizedMatMulAs<Products, CodeBits::k8>(w, bias, x, m, begin, end, y);
  QuantizedMatMulAs<Products, CodeBits::k4>(w, bias, x, m, begin, end, y);
}

void QuantizedMatMul(const QuantizedView& w, const float* bias, const QuantizedRows& x, int64_t m, int64_t begin,
                     int64_t end, float* y, ByteUnit unit) {
  if (unit == UnitBytes::kUnit) return QuantizedMatMulWith<UnitBytes>(w, bias, x, m, begin, end, y);
  QuantizedMatMulWith<PortableBytes>(w, bias, x, m, begin, end, y);
}

// Returns the largest magnitude of n floats, n a multiple of the vector size; NaN if one is not finite.
HWY_INLINE float LargestOf(const float* x, int64_t n) {
  V largest = hn::Zero(F32());
  V poison = hn::Zero(F32());
  for (int64_t i = 0; i < n; i += kLanes) {
    const V xs = hn::LoadU(F32(), x + i);
    largest = hn::Max(largest, hn::Abs(xs));
    poison = hn::MulAdd(xs, hn::Zero(F32()), poison);
  }
  return hn::GetLane(hn::MaxOfLanes(F32(), largest)) + hn::GetLane(hn::SumOfLanes(F32(), poison));
}

// Computes codes[i] = x[i] * factor, rounded to nearest, ties to even, clamped to [low, high].
HWY_INLINE void Round(const float* x, int64_t n, float factor, float low, float high, int32_t* codes) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const V scaled = hn::Mul(hn::LoadU(F32(), x + i), hn::Set(F32(), factor));
    const V kept = hn::Min(hn::Max(scaled, hn::Set(F32(), low)), hn::Set(F32(), high));
    hn::StoreU(hn::NearestInt(kept), I32(), codes + i);
  }
}

// Groups with a smaller largest value are treated as zero: the inverse of their scale would overflow.
constexpr float kMinScale = 1e-30F;
constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();

void QuantizeRow(const float* x, int64_t cols, int64_t group, int8_t* high, int8_t* low, float* scales, int32_t* sums) {
  constexpr int64_t kMaxColumns = GroupColumns(CodeBits::k8);
  constexpr auto kMost = static_cast<float>(kLargestCode);
  const hn::Rebind<int8_t, I32> bytes;
  alignas(64) float padded[kMaxColumns];
  alignas(64) int32_t rounded[kMaxColumns];
  for (int64_t c = 0; c < cols; c += group, high += group, low += group, ++scales, ++sums) {
    const float* from = x + c;
    if (cols - c < group) {
      std::fill_n(std::copy_n(from, cols - c, padded), group - (cols - c), 0.0F);
      from = padded;
    }
    const float largest = LargestOf(from, group);
    if (!(largest > kMinScale)) {
      std::fill_n(high, group, int8_t{0});
      std::fill_n(low, group, int8_t{0});
      *scales = std::isnan(largest) ? kNoNumber : 0.0F;
      *sums = 0;
      continue;
    }
    *scales = largest / kMost;
    Round(from, group, kMost / largest, -kMost, kMost, rounded);
    VI sum = hn::Zero(I32());
    for (int64_t i = 0; i < group; i += kLanes) {
      const VI code = hn::LoadU(I32(), rounded + i);
      sum = hn::Add(sum, code);
      // The low byte is signed; the high byte absorbs the borrow.
      const VI low_byte = hn::ShiftRight<24>(hn::ShiftLeft<24>(code));
      const VI high_byte = hn::ShiftRight<8>(hn::Sub(code, low_byte));
      hn::StoreU(hn::DemoteTo(bytes, low_byte), bytes, low + i);
      hn::StoreU(hn::DemoteTo(bytes, high_byte), bytes, high + i);
    }
    *sums = hn::GetLane(hn::SumOfLanes(I32(), sum));
  }
}

// Conversions between BF16 bits and F32. AwayFromZero() rounds |x| up.
HWY_INLINE float FloatOf(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
HWY_INLINE uint16_t AwayFromZero(float x) { return static_cast<uint16_t>((std::bit_cast<uint32_t>(x) + 0xFFFF) >> 16); }

constexpr uint16_t kNoNumberBits = 0x7FC0;

// Quantises a group of 64 weights to 8-bit codes. Returns the scale.
HWY_INLINE uint16_t QuantizeTo8(const float* w, float largest, int32_t* codes) {
  const uint16_t scale = AwayFromZero(largest / 127.0F);
  Round(w, GroupColumns(CodeBits::k8), 1.0F / FloatOf(scale), -127.0F, 127.0F, codes);
  return scale;
}

// Quantises a group of 32 weights to 4-bit codes. Returns the scale. Tries several scales, which map the largest weight
// to about -8, and takes the one with the least squared error.
HWY_INLINE uint16_t QuantizeTo4(const float* w, float largest, int32_t* codes) {
  constexpr int64_t kGroup = GroupColumns(CodeBits::k4);
  constexpr float kSteps[] = {8.0F, 7.6F, 7.2F, 6.8F, 8.5F, 9.0F, 9.6F};
  float sign = -1.0F;
  for (int64_t i = 0; i < kGroup; ++i) {
    if (std::fabs(w[i]) == largest) {
      sign = w[i] > 0 ? -1.0F : 1.0F;
      break;
    }
  }
  alignas(64) int32_t tried[kGroup];
  float least = std::numeric_limits<float>::infinity();
  uint16_t best = 0;
  for (const float steps : kSteps) {
    const uint16_t scale = AwayFromZero(sign * largest / steps);
    Round(w, kGroup, 1.0F / FloatOf(scale), -8.0F, 7.0F, tried);
    // Summed in the same order on every instruction set, so that all choose the same scale.
    alignas(64) float errors[kPanel];
    for (int64_t lane = 0; lane < kPanel; lane += kLanes) {
      V squares = hn::Zero(F32());
      for (int64_t i = lane; i < kGroup; i += kPanel) {
        const V value = hn::ConvertTo(F32(), hn::LoadU(I32(), tried + i));
        const V error = hn::NegMulAdd(value, hn::Set(F32(), FloatOf(scale)), hn::LoadU(F32(), w + i));
        squares = hn::MulAdd(error, error, squares);
      }
      hn::StoreU(squares, F32(), errors + lane);
    }
    float sum = 0;
    for (const float error : errors) sum += error;
    if (sum < least) {
      least = sum;
      best = scale;
      std::copy_n(tried, kGroup, codes);
    }
  }
  return best;
}

// Writes the codes of a group to their places in a panel. `to` is the place of the group's first column.
HWY_INLINE void PlaceCodes(const int32_t* codes, CodeBits bits, uint8_t* to) {
  constexpr int64_t kMaxColumns = GroupColumns(CodeBits::k8);
  const int64_t group = GroupColumns(bits);
  const hn::Rebind<uint8_t, I32> bytes;
  alignas(64) uint8_t narrow[kMaxColumns];
  const VI offset = hn::Set(I32(), bits == CodeBits::k8 ? 128 : 8);
  for (int64_t i = 0; i < group; i += kLanes) {
    hn::StoreU(hn::DemoteTo(bytes, hn::Add(hn::LoadU(I32(), codes + i), offset)), bytes, narrow + i);
  }
  if (bits == CodeBits::k8) {
    for (int64_t i = 0; i < group; i += 4, to += kPanel * 4) memcpy(to, narrow + i, 4);
  } else {
    for (int64_t i = 0; i < group; i += 8, to += kPanel * 4) {
      uint32_t first = 0;
      uint32_t second = 0;
      memcpy(&first, narrow + i, sizeof(first));
      memcpy(&second, narrow + i + 4, sizeof(second));
      first |= second << 4;
      memcpy(to, &first, sizeof(first));
    }
  }
}

void QuantizeWeights(const MatrixView& w, const QuantizedView& view, int64_t begin, int64_t end, uint8_t* codes,
                     uint16_t* scales) {
  const int64_t group = GroupColumns(view.bits);
  const int64_t group_codes = view.panel_codes() / view.groups();
  std::vector<float> row_floats(static_cast<size_t>(view.groups() * group));
  alignas(64) int32_t rounded[GroupColumns(CodeBits::k8)];
  for (int64_t panel = begin; panel < end; ++panel) {
    for (int64_t lane = 0; lane < kPanel; ++lane) {
      const int64_t row = panel * kPanel + lane;
      if (row < w.rows) {
        const auto offset = static_cast<size_t>(row * w.cols) * DTypeBytes(w.dtype);
        cpu::ToFloat(w.dtype, static_cast<const char*>(w.data) + offset, w.cols, row_floats.data());
      } else {
        std::fill(row_floats.begin(), row_floats.end(), 0.0F);
      }
      for (int64_t g = 0; g < view.groups(); ++g) {
        const float* const floats = row_floats.data() + g * group;
        const float largest = LargestOf(floats, group);
        uint16_t& scale = scales[panel * view.panel_scales() + g * kPanel + lane];
        if (!(largest > kMinScale)) {
          std::fill_n(rounded, group, 0);
          scale = std::isnan(largest) ? kNoNumberBits : uint16_t{0};
        } else if (view.bits == CodeBits::k8) {
          scale = QuantizeTo8(floats, largest, rounded);
        } else {
          scale = QuantizeTo4(floats, largest, rounded);
        }
        PlaceCodes(rounded, view.bits, codes + panel * view.panel_codes() + g * group_codes + lane * 4);
      }
    }
  }
}

}  // namespace qtts::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qtts::cpu {

HWY_EXPORT(QuantizeWeights);
HWY_EXPORT(QuantizeRow);
HWY_EXPORT(QuantizedMatMul);

void QuantizeWeights(const MatrixView& w, const QuantizedView& view, int64_t begin, int64_t end, uint8_t* codes,
                     uint16_t* scales) {
  HWY_DYNAMIC_DISPATCH(QuantizeWeights)(w, view, begin, end, codes, scales);
}

void QuantizeRow(const float* x, int64_t cols, int64_t group, int8_t* high, int8_t* low, float* scales, int32_t* sums) {
  HWY_DYNAMIC_DISPATCH(QuantizeRow)(x, cols, group, high, low, scales, sums);
}

void QuantizedMatMul(const QuantizedView& w, const float* bias, const QuantizedRows& x, int64_t m, int64_t begin,
                     int64_t end, float* y, ByteUnit unit) {
  HWY_DYNAMIC_DISPATCH(QuantizedMatMul)(w, bias, x, m, begin, end, y, unit);
}

}  // namespace qtts::cpu
#endif  // HWY_ONCE
