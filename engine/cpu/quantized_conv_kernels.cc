// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/quantized_conv_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "base/of_thread.h"
#include "cpu/bf16_kernels.h"
#include "cpu/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/quantized_conv_kernels.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// Must follow foreach_target.h.
#include <hwy/highway.h>

#include "cpu/byte_products-inl.h"
#include "cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qtts::cpu::HWY_NAMESPACE {

constexpr int kPanelVectors = static_cast<int>(kPanel) / static_cast<int>(kLanes);

// Computes x + inverse_b * sin^2(pi * turns * x). The square has a period of one turn, so the angle is reduced to the
// nearest whole turn. The remainder goes through a minimax polynomial.
HWY_INLINE V SnakeOf(V x, V turns, V inverse_b) {
  const F32 d;
  const V angle = hn::Mul(x, turns);
  const V rest = hn::Sub(angle, hn::Round(angle));
  const V z = hn::Mul(rest, rest);
  V p = hn::Set(d, 10.5813003F);
  p = hn::MulAdd(p, z, hn::Set(d, -29.4262743F));
  p = hn::MulAdd(p, z, hn::Set(d, 42.6434262F));
  p = hn::MulAdd(p, z, hn::Set(d, -32.4651395F));
  p = hn::MulAdd(p, z, hn::Set(d, 9.86952481F));
  return hn::MulAdd(hn::Mul(inverse_b, z), p, x);
}

void FastSnake(const SnakeView& snake, const float* x, int64_t rows, int64_t channels, float* y) {
  const F32 d;
  for (int64_t t = 0; t < rows; ++t, x += channels, y += channels) {
    int64_t c = 0;
    for (; c + kLanes <= channels; c += kLanes) {
      hn::StoreU(SnakeOf(hn::LoadU(d, x + c), hn::LoadU(d, snake.turns + c), hn::LoadU(d, snake.inverse_b + c)), d,
                 y + c);
    }
    if (c < channels) {
      const int64_t n = channels - c;
      StorePart(SnakeOf(LoadPart(x + c, n), LoadPart(snake.turns + c, n), LoadPart(snake.inverse_b + c, n)), y + c, n);
    }
  }
}

bool NarrowToHalf(const float* x, int64_t n, uint16_t* y) {
  const F32 d;
  const hn::Rebind<hwy::float16_t, F32> halves;
  const V most = hn::Set(d, 65504.0F);
  const V infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  bool fits = true;
  for (int64_t i = 0; i < n; i += kLanes) {
    const int64_t count = std::min(kLanes, n - i);
    const V v = count == kLanes ? hn::LoadU(d, x + i) : LoadPart(x + i, count);
    const V magnitude = hn::Abs(v);
    fits = fits && hn::AllFalse(d, hn::And(hn::Gt(magnitude, most), hn::Lt(magnitude, infinity)));
    alignas(64) hwy::float16_t buffer[kLanes];
    hn::StoreU(hn::DemoteTo(halves, v), halves, buffer);
    memcpy(y + i, buffer, static_cast<size_t>(count) * sizeof(uint16_t));
  }
  return fits;
}

// Returns the bits of |v|. As integers they order like the magnitudes, with NaN above infinity.
HWY_INLINE VI Magnitude(V v) { return hn::BitCast(I32(), hn::And(hn::BitCast(U32(), v), hn::Set(U32(), 0x7FFFFFFFU))); }

HWY_INLINE int32_t LargestOf(VI v) {
  alignas(64) int32_t lanes[kLanes];
  hn::StoreU(v, I32(), lanes);
  return *std::max_element(lanes, lanes + kLanes);
}

HWY_INLINE int32_t SumOf(VI v) {
  alignas(64) int32_t lanes[kLanes];
  hn::StoreU(v, I32(), lanes);
  int32_t sum = 0;
  for (const int32_t lane : lanes) sum += lane;
  return sum;
}

// Rows with a smaller largest magnitude are treated as zero: 127 divided by it would overflow.
constexpr float kMinMagnitude = 1e-30F;

// Quantises a row. `largest_bits`: the bits of the largest magnitude of `values`.
void PrepareInt8Row(const float* values, int64_t in, int32_t largest_bits, std::byte* y) {
  const F32 d;
  const float largest = std::bit_cast<float>(largest_bits);
  float scale = 0;
  float inverse = 0;
  if (largest_bits >= 0x7F800000) {
    scale = std::numeric_limits<float>::quiet_NaN();
  } else if (largest >= kMinMagnitude) {
    scale = largest / 127.0F;
    inverse = 127.0F / largest;
  }
  auto* const q = reinterpret_cast<int8_t*>(y + ProductConvView::kInt8Header);
  const hn::Rebind<int8_t, F32> bytes;
  const V inverses = hn::Set(d, inverse);
  VI sums = hn::Zero(I32());
  int64_t c = 0;
  for (; c + kLanes <= in; c += kLanes) {
    const VI rounded = hn::NearestInt(hn::Mul(hn::LoadU(d, values + c), inverses));
    sums = hn::Add(sums, rounded);
    hn::StoreU(hn::DemoteTo(bytes, rounded), bytes, q + c);
  }
  if (c < in) {
    const VI rounded = hn::NearestInt(hn::Mul(LoadPart(values + c, in - c), inverses));
    sums = hn::Add(sums, rounded);
    alignas(64) int8_t buffer[kLanes];
    hn::StoreU(hn::DemoteTo(bytes, rounded), bytes, buffer);
    memcpy(q + c, buffer, static_cast<size_t>(in - c));
  }
  if (in % 4 != 0) memset(q + in, 0, static_cast<size_t>(4 - in % 4));
  // If the row is not finite its integers are meaningless, and their sum may be anything.
  const int32_t offset = largest_bits >= 0x7F800000 ? 0 : -128 * SumOf(sums);
  memcpy(y, &scale, sizeof(scale));
  memcpy(y + sizeof(scale), &offset, sizeof(offset));
}

// Rounds to the nearest BF16, ties to even. NaN stays NaN.
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, F32>> RoundToBF16(V v) {
  const U32 d;
  const auto bits = hn::BitCast(d, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(d, 0x7FFF)), odd));
  const auto nan = hn::Gt(Magnitude(v), hn::Set(I32(), 0x7F800000));
  const VI kept = hn::IfThenElse(nan, hn::Set(I32(), 0x7FC0), hn::BitCast(I32(), rounded));
  return hn::DemoteTo(hn::Rebind<uint16_t, F32>(), kept);
}

void PrepareBF16Row(const float* values, int64_t in, std::byte* y) {
  const F32 d;
  const hn::Rebind<uint16_t, F32> halves;
  auto* const to = reinterpret_cast<uint16_t*>(y);
  int64_t c = 0;
  for (; c + kLanes <= in; c += kLanes) {
    hn::StoreU(RoundToBF16(hn::LoadU(d, values + c)), halves, to + c);
  }
  if (c < in) {
    alignas(64) uint16_t buffer[kLanes];
    hn::StoreU(RoundToBF16(LoadPart(values + c, in - c)), halves, buffer);
    memcpy(to + c, buffer, static_cast<size_t>(in - c) * sizeof(uint16_t));
  }
  if (in % 2 != 0) to[in] = 0;
}

void PrepareRows(const ProductConvView& view, const SnakeView* snake, const float* x, int64_t rows, std::byte* y) {
  const F32 d;
  const int64_t in = view.in;
  struct Scratch {
    std::vector<float> values;
  };
  std::vector<float>& scratch = OfThread<Scratch>().values;
  if (snake != nullptr && scratch.size() < static_cast<size_t>(in)) scratch.resize(static_cast<size_t>(in));
  for (int64_t t = 0; t < rows; ++t, x += in, y += view.row_bytes()) {
    const float* values = x;
    if (snake != nullptr) {
      HWY_NAMESPACE::FastSnake(*snake, x, 1, in, scratch.data());
      values = scratch.data();
    }
    if (view.type == ProductType::kBF16) {
      PrepareBF16Row(values, in, y);
      continue;
    }
    VI largest = hn::Zero(I32());
    int64_t c = 0;
    for (; c + kLanes <= in; c += kLanes) largest = hn::Max(largest, Magnitude(hn::LoadU(d, values + c)));
    if (c < in) largest = hn::Max(largest, Magnitude(LoadPart(values + c, in - c)));
    PrepareInt8Row(values, in, LargestOf(largest), y);
  }
}

// Broadcasts four consecutive bytes of a row (or two BF16) to all lanes.
HWY_INLINE VI Broadcast(const std::byte* p) {
  int32_t four;
  memcpy(&four, p, sizeof(four));
  return hn::Set(I32(), four);
}

HWY_INLINE VI LoadStep(const std::byte* p) { return hn::LoadU(I32(), reinterpret_cast<const int32_t*>(p)); }

// As the sums of bytes in byte_products-inl.h, two BF16 a lane.
#if QTTS_AVX512
struct NativeBF16 {
  using Sum = V;
  using Weights = VI;
  using Inputs = VI;
  static HWY_INLINE VI OfWeights(VI v) { return v; }
  static HWY_INLINE VI OfInputs(VI v) { return v; }
  static HWY_INLINE V Add(V sum, VI w, VI x) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(w.raw), "v"(x.raw));
    return sum;
  }
};
#endif

struct PortableBF16 {
  using Sum = V;
  // Explicit constructors: the implicit ones are not compiled for this target, and GCC refuses to inline V's
  // constructors into them.
  struct Weights {
    HWY_INLINE Weights() {}
    HWY_INLINE Weights(V even_places, V odd_places) : even(even_places), odd(odd_places) {}
    V even, odd;
  };
  using Inputs = Weights;
  static HWY_INLINE Weights OfWeights(VI v) {
    return {hn::BitCast(F32(), hn::ShiftLeft<16>(v)),
            hn::BitCast(F32(), hn::And(v, hn::Set(I32(), static_cast<int32_t>(0xFFFF0000U))))};
  }
  static HWY_INLINE Inputs OfInputs(VI v) { return OfWeights(v); }
  static HWY_INLINE V Add(V sum, const Weights& w, const Inputs& x) {
    return hn::MulAdd(w.odd, x.odd, hn::MulAdd(w.even, x.even, sum));
  }
};

// Computes kRows output rows of kPanels panels.
template <class Products, int kRows, int kPanels>
HWY_INLINE void Tile(const ProductConvView& view, int64_t panel, const std::byte* x, bool accumulate, float* y) {
  constexpr bool kInt8 = std::is_same_v<typename Products::Sum, VI>;
  constexpr int kVectors = kPanels * kPanelVectors;
  constexpr int64_t kStepBytes = kPanel * 4;
  constexpr int64_t kVectorBytes = kLanes * 4;
  const F32 d;
  const int64_t row_bytes = view.row_bytes();
  const int64_t panel_bytes = view.panel_bytes();
  const int64_t steps = view.steps();
  const std::byte* w = view.weights + panel * panel_bytes;
  V total[kRows][kVectors];
  HWY_UNROLL(16) for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(16) for (int v = 0; v < kVectors; ++v) total[r][v] = hn::Zero(d);
  }
  typename Products::Sum sum[kRows][kVectors];
  if constexpr (!kInt8) {
    HWY_UNROLL(16) for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(16) for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
    }
  }
  for (int64_t tap = 0; tap < view.taps; ++tap) {
    const std::byte* const row = x + tap * view.dilation * row_bytes;
    const std::byte* input = row;
    if constexpr (kInt8) {
      input += ProductConvView::kInt8Header;
      HWY_UNROLL(16) for (int r = 0; r < kRows; ++r) {
        VI offset = hn::Zero(I32());
        if constexpr (!Products::kSignedWeights) offset = Broadcast(row + r * row_bytes + 4);
        HWY_UNROLL(16) for (int v = 0; v < kVectors; ++v) sum[r][v] = offset;
      }
    }
    for (int64_t step = 0; step < steps; ++step, w += kStepBytes, input += 4) {
      typename Products::Weights ws[kVectors];
      HWY_UNROLL(16) for (int v = 0; v < kVectors; ++v) {
        ws[v] =
            Products::OfWeights(LoadStep(w + (v / kPanelVectors) * panel_bytes + (v % kPanelVectors) * kVectorBytes));
      }
      HWY_UNROLL(16) for (int r = 0; r < kRows; ++r) {
        const typename Products::Inputs xs = Products::OfInputs(Broadcast(input + r * row_bytes));
        HWY_UNROLL(16) for (int v = 0; v < kVectors; ++v) sum[r][v] = Products::Add(sum[r][v], ws[v], xs);
      }
    }
    if constexpr (kInt8) {
      HWY_UNROLL(16) for (int r = 0; r < kRows; ++r) {
        const V scale = hn::BitCast(d, Broadcast(row + r * row_bytes));
        HWY_UNROLL(16) for (int v = 0; v < kVectors; ++v) {
          total[r][v] = hn::MulAdd(hn::ConvertTo(d, sum[r][v]), scale, total[r][v]);
        }
      }
    }
  }
  HWY_UNROLL(16) for (int v = 0; v < kVectors; ++v) {
    const int64_t out = panel * kPanel + v * kLanes;
    const int64_t n = std::min<int64_t>(kLanes, view.out - out);
    if (n <= 0) break;
    const V bias = hn::LoadU(d, view.bias + out);
    HWY_UNROLL(16) for (int r = 0; r < kRows; ++r) {
      V value;
      if constexpr (kInt8) {
        value = hn::MulAdd(total[r][v], hn::LoadU(d, view.scales + out), bias);
      } else {
        value = hn::Add(sum[r][v], bias);
      }
      float* const to = y + r * view.out + out;
      if (n == kLanes) {
        hn::StoreU(accumulate ? hn::Add(value, hn::LoadU(d, to)) : value, d, to);
      } else {
        StorePart(accumulate ? hn::Add(value, LoadPart(to, n)) : value, to, n);
      }
    }
  }
}

template <class Products, int kRows, int kPanels>
HWY_INLINE int64_t TileRows(const ProductConvView& view, int64_t panel, const std::byte* x, int64_t t, int64_t rows,
                            bool accumulate, float* y) {
  for (; t + kRows <= rows; t += kRows) {
    Tile<Products, kRows, kPanels>(view, panel, x + t * view.row_bytes(), accumulate, y + t * view.out);
  }
  return t;
}

// Runs kMost rows at a time, then fewer.
template <class Products, int kMost, int kPanels>
void Panels(const ProductConvView& view, int64_t panel, const std::byte* x, int64_t t, int64_t rows, bool accumulate,
            float* y) {
  t = TileRows<Products, kMost, kPanels>(view, panel, x, t, rows, accumulate, y);
  if constexpr (kMost > 1) {
    if (t < rows) Panels<Products, kMost / 2, kPanels>(view, panel, x, t, rows, accumulate, y);
  }
}

// Rows computed for all panels before the next rows, so that inputs and weights fit L1 and L2.
constexpr int64_t kRowBlock = 256;

// Tile shapes keep all sums in registers: 32 vector registers of 16 lanes with AVX-512, otherwise 16 registers.
template <class Products>
void Run(const ProductConvView& view, const std::byte* x, int64_t rows, int64_t begin, int64_t end, bool accumulate,
         float* y) {
  for (int64_t t = 0; t < rows; t += kRowBlock) {
    const int64_t block = std::min(kRowBlock, rows - t);
    const std::byte* const from = x + t * view.row_bytes();
    float* const to = y + t * view.out;
    int64_t panel = begin;
    if constexpr (kLanes >= 16) {
      for (; panel + 3 <= end; panel += 3) Panels<Products, 8, 3>(view, panel, from, 0, block, accumulate, to);
      for (; panel < end; ++panel) Panels<Products, 16, 1>(view, panel, from, 0, block, accumulate, to);
    } else {
      constexpr int kRows = kLanes >= 8 ? 4 : kLanes >= 4 ? 2 : 1;
      for (; panel < end; ++panel) Panels<Products, kRows, 1>(view, panel, from, 0, block, accumulate, to);
    }
  }
}

void ProductConv(const ProductConvView& view, const std::byte* x, int64_t rows, int64_t begin, int64_t end,
                 bool accumulate, float* y, const ProductUnits& units) {
  (void)units;
  if (view.type == ProductType::kBF16) {
#if QTTS_AVX512
    if (units.bf16) return Run<NativeBF16>(view, x, rows, begin, end, accumulate, y);
#endif
    return Run<PortableBF16>(view, x, rows, begin, end, accumulate, y);
  }
  if (units.bytes == UnitBytes::kUnit) return Run<UnitBytes>(view, x, rows, begin, end, accumulate, y);
  Run<PortableBytes>(view, x, rows, begin, end, accumulate, y);
}

}  // namespace qtts::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qtts::cpu {

HWY_EXPORT(FastSnake);
HWY_EXPORT(NarrowToHalf);
HWY_EXPORT(PrepareRows);
HWY_EXPORT(ProductConv);

ProductUnits BestProductUnits() {
  ProductUnits units;
  units.bytes = BestByteUnit();
#if HWY_ARCH_X86
  units.bf16 = BestTarget() <= HWY_AVX3 && HasBF16Products();
#endif
  return units;
}

bool HasHalfLoads() {
#if HWY_ARCH_X86
  return BestTarget() <= HWY_AVX2;
#else
  return HWY_ARCH_ARM_A64 != 0;
#endif
}

bool NarrowToHalf(const float* x, int64_t n, uint16_t* y) { return HWY_DYNAMIC_DISPATCH(NarrowToHalf)(x, n, y); }

void FastSnake(const SnakeView& snake, const float* x, int64_t rows, int64_t channels, float* y) {
  HWY_DYNAMIC_DISPATCH(FastSnake)(snake, x, rows, channels, y);
}

void PackOutput(const ProductConvView& view, int64_t output, const float* values, std::byte* weights, float* scales) {
  const bool int8 = view.type == ProductType::kInt8;
  const int64_t per_step = int8 ? 4 : 2;
  float inverse = 0;
  if (int8) {
    float largest = 0;
    bool finite = true;
    for (int64_t i = 0; i < view.taps * view.in; ++i) {
      finite = finite && std::isfinite(values[i]);
      largest = std::max(largest, std::fabs(values[i]));
    }
    scales[output] = finite ? largest / 127.0F : std::numeric_limits<float>::quiet_NaN();
    if (finite && largest >= 1e-30F) inverse = 127.0F / largest;
  }
  std::byte* to = weights + output / kPanel * view.panel_bytes() + output % kPanel * 4;
  for (int64_t tap = 0; tap < view.taps; ++tap, values += view.in) {
    for (int64_t step = 0; step < view.steps(); ++step, to += kPanel * 4) {
      for (int64_t i = 0; i < per_step; ++i) {
        const int64_t c = step * per_step + i;
        const float value = c < view.in ? values[c] : 0.0F;
        if (int8) {
          const float q = inverse == 0 ? 0.0F : std::nearbyint(value * inverse);
          to[i] = static_cast<std::byte>(static_cast<int>(q) + 128);
        } else {
          const auto bits = std::bit_cast<uint32_t>(value);
          const auto half =
              std::isnan(value) ? uint16_t{0x7FC0} : static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
          memcpy(to + 2 * i, &half, sizeof(half));
        }
      }
    }
  }
}

void PrepareRows(const ProductConvView& view, const SnakeView* snake, const float* x, int64_t rows, std::byte* y) {
  HWY_DYNAMIC_DISPATCH(PrepareRows)(view, snake, x, rows, y);
}

void ProductConv(const ProductConvView& view, const std::byte* x, int64_t rows, int64_t begin, int64_t end,
                 bool accumulate, float* y, const ProductUnits& units) {
  HWY_DYNAMIC_DISPATCH(ProductConv)(view, x, rows, begin, end, accumulate, y, units);
}

}  // namespace qtts::cpu
#endif  // HWY_ONCE
