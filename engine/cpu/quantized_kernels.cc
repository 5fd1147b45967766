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
// The target with 8-bit dot products is Highway's AVX3_DL.
#define HWY_WANT_AVX3_DL

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/quantized_kernels.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// Must follow foreach_target.h.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

// Highway 1.0 checks for VNNI at run time before it selects this target, but does not pass the feature to the compiler.
#if HWY_TARGET == HWY_AVX3_DL && !defined(HWY_TARGET_STR_AVX3_DL)
#undef HWY_TARGET_STR
#define HWY_TARGET_STR \
  HWY_TARGET_STR_AVX3  \
  ",vpclmulqdq,avx512vbmi,avx512vbmi2,vaes,avxvnni,avx512bitalg,avx512vpopcntdq,avx512vnni"
#endif

HWY_BEFORE_NAMESPACE();
namespace qtts::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most one panel wide.
using F32 = hn::CappedTag<float, kPanel>;
using I32 = hn::RebindToSigned<F32>;
using U32 = hn::RebindToUnsigned<F32>;
using VF = hn::Vec<F32>;
using VI = hn::Vec<I32>;
using VU = hn::Vec<U32>;

constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(F32()));
constexpr auto kVectors = static_cast<int>(kPanel / kLanes);

// Dot products of four codes of each weight row (u8, one lane per row) and four codes of the activations (the same in
// every lane). All variants give the same sums. kOffset is the offset still contained in the weights' codes when they
// are multiplied.
#if HWY_TARGET_IS_NEON && defined(__ARM_FEATURE_DOTPROD)
#define QTTS_DOT_NEON 1
#else
#define QTTS_DOT_NEON 0
#endif

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
constexpr int32_t kOffset = 128;
using Weights = VU;
using Activations = VI;
HWY_INLINE Weights Prepare(VU codes) { return codes; }
HWY_INLINE Activations Spread(const int8_t* codes) {
  int32_t four = 0;
  memcpy(&four, codes, sizeof(four));
  return hn::Set(I32(), four);
}
HWY_INLINE VI Dot(VI sum, Weights w, Activations x) { return VI{_mm512_dpbusd_epi32(sum.raw, w.raw, x.raw)}; }
#elif HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
// Bytes widened to 16 bits, split into even and odd positions.
constexpr int32_t kOffset = 128;
struct Weights {
  VU even, odd;
};
struct Activations {
  VI even, odd;
};
HWY_INLINE Weights Prepare(VU codes) {
  const hn::Repartition<uint16_t, F32> u16;
  const auto pairs = hn::BitCast(u16, codes);
  return {hn::And(codes, hn::Set(U32(), 0x00FF00FF)), hn::BitCast(U32(), hn::ShiftRight<8>(pairs))};
}
HWY_INLINE Activations Spread(const int8_t* codes) {
  int32_t four = 0;
  memcpy(&four, codes, sizeof(four));
  const hn::Repartition<int16_t, F32> i16;
  const auto pairs = hn::BitCast(i16, hn::Set(I32(), four));
  return {hn::BitCast(I32(), hn::ShiftRight<8>(hn::ShiftLeft<8>(pairs))), hn::BitCast(I32(), hn::ShiftRight<8>(pairs))};
}
HWY_INLINE VI PairProducts(VU w, VI x) {
#if HWY_TARGET <= HWY_AVX3
  return VI{_mm512_madd_epi16(w.raw, x.raw)};
#elif HWY_TARGET <= HWY_AVX2
  return VI{_mm256_madd_epi16(w.raw, x.raw)};
#else
  return VI{_mm_madd_epi16(w.raw, x.raw)};
#endif
}
HWY_INLINE VI Dot(VI sum, const Weights& w, const Activations& x) {
  return hn::Add(sum, hn::Add(PairProducts(w.even, x.even), PairProducts(w.odd, x.odd)));
}
#elif HWY_ARCH_ARM_A64
constexpr int32_t kOffset = 0;
using Weights = int8x16_t;
using Activations = int8x16_t;
HWY_INLINE Weights Prepare(VU codes) { return vreinterpretq_s8_u32(veorq_u32(codes.raw, vdupq_n_u32(0x80808080))); }
HWY_INLINE Activations Spread(const int8_t* codes) {
  int32_t four = 0;
  memcpy(&four, codes, sizeof(four));
  return vreinterpretq_s8_s32(vdupq_n_s32(four));
}
HWY_INLINE VI Dot(VI sum, Weights w, Activations x) {
#if QTTS_DOT_NEON
  return VI(vdotq_s32(sum.raw, w, x));
#else
  const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x)));
  const int32x4_t high = vpaddlq_s16(vmull_high_s8(w, x));
  return VI(vaddq_s32(sum.raw, vpaddq_s32(low, high)));
#endif
}
#else
constexpr int32_t kOffset = 128;
using Weights = std::array<VI, 4>;
using Activations = std::array<VI, 4>;
HWY_INLINE Weights Prepare(VU codes) {
  const VU byte = hn::Set(U32(), 0xFF);
  return {hn::BitCast(I32(), hn::And(codes, byte)), hn::BitCast(I32(), hn::And(hn::ShiftRight<8>(codes), byte)),
          hn::BitCast(I32(), hn::And(hn::ShiftRight<16>(codes), byte)), hn::BitCast(I32(), hn::ShiftRight<24>(codes))};
}
HWY_INLINE Activations Spread(const int8_t* codes) {
  return {hn::Set(I32(), codes[0]), hn::Set(I32(), codes[1]), hn::Set(I32(), codes[2]), hn::Set(I32(), codes[3])};
}
HWY_INLINE VI Dot(VI sum, const Weights& w, const Activations& x) {
  for (size_t i = 0; i < 4; ++i) sum = hn::Add(sum, hn::Mul(w[i], x[i]));
  return sum;
}
#endif

// Prefetch distance. Hardware prefetchers stop at the end of a page.
constexpr int64_t kPrefetchBytes = 4096;

// Vector `v` of the codes of step `step`: four columns of a panel's rows, counted from `codes`.
template <CodeBits kBits>
HWY_INLINE Weights LoadCodes(const uint8_t* codes, int64_t step, int v) {
  if constexpr (kBits == CodeBits::k8) {
    return Prepare(hn::LoadU(U32(), reinterpret_cast<const uint32_t*>(codes + step * kPanel * 4) + v * kLanes));
  } else {
    // One byte holds codes of two steps.
    const VU both = hn::LoadU(U32(), reinterpret_cast<const uint32_t*>(codes + step / 2 * kPanel * 4) + v * kLanes);
    return Prepare(hn::And(step % 2 == 0 ? both : hn::ShiftRight<4>(both), hn::Set(U32(), 0x0F0F0F0F)));
  }
}

// kCount inputs times the rows of kPanels panels, starting at `panel`. The steps of an unrolled loop add to separate
// sums, to shorten the dependency chains.
template <CodeBits kBits, int kCount, int kPanels>
HWY_INLINE void PanelTile(const QuantizedView& w, int64_t panel, const QuantizedRows& x, int64_t row, VF* totals) {
  constexpr int64_t kGroup = GroupColumns(kBits);
  // Bytes of one step (four columns), and steps per iteration.
  constexpr int64_t kStepBytes = kBits == CodeBits::k8 ? kPanel * 4 : kPanel * 2;
  constexpr int64_t kSteps = kLanes >= 8 ? 4 : 2;
  // Independent sums per input, each for the high and the low bytes.
  constexpr int kChains = kLanes >= 16 && kCount == 1 ? 2 : 1;
  // Offset to correct: 8 for 4-bit codes, kOffset for 8-bit codes. With kOffset 0, Prepare() has subtracted 128 from
  // the code.
  constexpr int32_t kShift = kBits == CodeBits::k4 ? kOffset == 0 ? 8 - 128 : 8 : kOffset;
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
      HWY_UNROLL(2) for (int p = 0; p < kPanels; ++p) {
        hwy::Prefetch(codes + p * panel_codes + kPrefetchBytes);
        if constexpr (kSteps * kStepBytes > 64) hwy::Prefetch(codes + p * panel_codes + kPrefetchBytes + 64);
      }
      HWY_UNROLL(4) for (int64_t step = 0; step < kSteps; ++step) {
        Weights ws[kAll];
        HWY_UNROLL(16) for (int v = 0; v < kAll; ++v) {
          ws[v] = LoadCodes<kBits>(codes + v / kVectors * panel_codes, step, v % kVectors);
        }
        HWY_UNROLL(16) for (int i = 0; i < kCount; ++i) {
          const Activations highs = Spread(high_codes + i * stride + (k + step) * 4);
          const Activations lows = Spread(low_codes + i * stride + (k + step) * 4);
          HWY_UNROLL(16) for (int v = 0; v < kAll; ++v) {
            VI& to_high = high[i][step % kChains][v];
            VI& to_low = low[i][step % kChains][v];
            to_high = Dot(to_high, ws[v], highs);
            to_low = Dot(to_low, ws[v], lows);
          }
        }
      }
    }
    HWY_UNROLL(16) for (int v = 0; v < kAll; ++v) {
      const hn::Rebind<hwy::bfloat16_t, F32> bf16;
      const uint16_t* const from = scales + v / kVectors * panel_scales + g * kPanel + v % kVectors * kLanes;
      const VF scale = hn::PromoteTo(F32(), hn::LoadU(bf16, reinterpret_cast<const hwy::bfloat16_t*>(from)));
      HWY_UNROLL(16) for (int i = 0; i < kCount; ++i) {
        VI high_sum = high[i][0][v];
        VI low_sum = low[i][0][v];
        HWY_UNROLL(4) for (int c = 1; c < kChains; ++c) {
          high_sum = hn::Add(high_sum, high[i][c][v]);
          low_sum = hn::Add(low_sum, low[i][c][v]);
        }
        // The parts may overflow 32 bits; their sum does not.
        const VI whole = hn::Add(hn::ShiftLeft<8>(high_sum), low_sum);
        const VF factor = hn::Mul(scale, hn::Set(F32(), x.scales[(row + i) * x.groups + g]));
        totals[i * kAll + v] = hn::MulAdd(hn::ConvertTo(F32(), whole), factor, totals[i * kAll + v]);
      }
    }
  }
}

// Runs inputs [row, m), kCount at a time, then fewer, times kPanels panels.
template <CodeBits kBits, int kCount, int kPanels>
HWY_INLINE void PanelInputs(const QuantizedView& w, int64_t panel, const float* bias, const QuantizedRows& x,
                            int64_t row, int64_t m, float* y) {
  constexpr int kAll = kPanels * kVectors;
  for (; row + kCount <= m; row += kCount) {
    VF totals[kCount * kAll];
    for (VF& total : totals) total = hn::Zero(F32());
    PanelTile<kBits, kCount, kPanels>(w, panel, x, row, totals);
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
  if constexpr (kCount > 1) PanelInputs<kBits, kCount / 2, kPanels>(w, panel, bias, x, row, m, y);
}

// As many inputs and panels as keep all sums in registers. Two panels share the loads of the inputs, which pays for
// many inputs. For few inputs, one panel after the other reads weights from memory faster.
constexpr int kMostInputs = kLanes >= 16 ? 4 : 1;
constexpr int kMostPanels = kLanes >= 16 ? 2 : 1;

template <CodeBits kBits>
void QuantizedMatMulAs(const QuantizedView& w, const float* bias, const QuantizedRows& x, int64_t m, int64_t begin,
                       int64_t end, float* y) {
  int64_t panel = begin;
  for (; m >= kMostInputs && panel + kMostPanels <= end; panel += kMostPanels) {
    PanelInputs<kBits, kMostInputs, kMostPanels>(w, panel, bias, x, 0, m, y);
  }
  for (; panel < end; ++panel) PanelInputs<kBits, kMostInputs, 1>(w, panel, bias, x, 0, m, y);
}

void QuantizedMatMul(const QuantizedView& w, const float* bias, const QuantizedRows& x, int64_t m, int64_t begin,
                     int64_t end, float* y) {
  if (w.bits == CodeBits::k8) return QuantizedMatMulAs<CodeBits::k8>(w, bias, x, m, begin, end, y);
  QuantizedMatMulAs<CodeBits::k4>(w, bias, x, m, begin, end, y);
}

// Largest magnitude of n floats, n a multiple of the vector size; NaN if one is not finite.
HWY_INLINE float LargestOf(const float* x, int64_t n) {
  VF largest = hn::Zero(F32());
  VF poison = hn::Zero(F32());
  for (int64_t i = 0; i < n; i += kLanes) {
    const VF xs = hn::LoadU(F32(), x + i);
    largest = hn::Max(largest, hn::Abs(xs));
    poison = hn::MulAdd(xs, hn::Zero(F32()), poison);
  }
  return hn::GetLane(hn::MaxOfLanes(F32(), largest)) + hn::GetLane(hn::SumOfLanes(F32(), poison));
}

// codes[i] = x[i] * factor, rounded to nearest, ties to even, clamped to [low, high].
HWY_INLINE void Round(const float* x, int64_t n, float factor, float low, float high, int32_t* codes) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const VF scaled = hn::Mul(hn::LoadU(F32(), x + i), hn::Set(F32(), factor));
    const VF kept = hn::Min(hn::Max(scaled, hn::Set(F32(), low)), hn::Set(F32(), high));
    hn::StoreU(hn::NearestInt(kept), I32(), codes + i);
  }
}

// Groups with a smaller largest value are treated as zero: the inverse of their scale would overflow.
constexpr float kLeastScale = 1e-30F;
constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();

void QuantizeRow(const float* x, int64_t cols, int64_t group, int8_t* high, int8_t* low, float* scales, int32_t* sums) {
  constexpr int64_t kMostColumns = GroupColumns(CodeBits::k8);
  constexpr auto kMost = static_cast<float>(kLargestCode);
  const hn::Rebind<int8_t, I32> bytes;
  alignas(64) float padded[kMostColumns];
  alignas(64) int32_t rounded[kMostColumns];
  for (int64_t c = 0; c < cols; c += group, high += group, low += group, ++scales, ++sums) {
    const float* from = x + c;
    if (cols - c < group) {
      std::fill_n(std::copy_n(from, cols - c, padded), group - (cols - c), 0.0F);
      from = padded;
    }
    const float largest = LargestOf(from, group);
    if (!(largest > kLeastScale)) {
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
      VF squares = hn::Zero(F32());
      for (int64_t i = lane; i < kGroup; i += kPanel) {
        const VF value = hn::ConvertTo(F32(), hn::LoadU(I32(), tried + i));
        const VF error = hn::NegMulAdd(value, hn::Set(F32(), FloatOf(scale)), hn::LoadU(F32(), w + i));
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
  constexpr int64_t kMostColumns = GroupColumns(CodeBits::k8);
  const int64_t group = GroupColumns(bits);
  const hn::Rebind<uint8_t, I32> bytes;
  alignas(64) uint8_t narrow[kMostColumns];
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
        if (!(largest > kLeastScale)) {
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

std::string QuantizedInstructionSet() {
  const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(targets & -targets);
}

std::vector<int64_t> QuantizedTargets() { return hwy::SupportedAndGeneratedTargets(); }

void QuantizeWeights(const MatrixView& w, const QuantizedView& view, int64_t begin, int64_t end, uint8_t* codes,
                     uint16_t* scales) {
  HWY_DYNAMIC_DISPATCH(QuantizeWeights)(w, view, begin, end, codes, scales);
}

void QuantizeRow(const float* x, int64_t cols, int64_t group, int8_t* high, int8_t* low, float* scales, int32_t* sums) {
  HWY_DYNAMIC_DISPATCH(QuantizeRow)(x, cols, group, high, low, scales, sums);
}

void QuantizedMatMul(const QuantizedView& w, const float* bias, const QuantizedRows& x, int64_t m, int64_t begin,
                     int64_t end, float* y) {
  HWY_DYNAMIC_DISPATCH(QuantizedMatMul)(w, bias, x, m, begin, end, y);
}

}  // namespace qtts::cpu
#endif  // HWY_ONCE
