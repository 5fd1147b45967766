// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// Must follow foreach_target.h.
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qtts::cpu::HWY_NAMESPACE {

// Returns the sums of adjacent lanes: those of a in the lower half, those of b in the upper half.
HWY_INLINE V PairSums(V a, V b) {
#if HWY_TARGET == HWY_SCALAR
  (void)b;
  return a;
#else
  return hn::Add(hn::ConcatEven(F32(), b, a), hn::ConcatOdd(F32(), b, a));
#endif
}

// Returns the horizontal sums of kCount vectors (a power of two, at most kLanes), in the first lanes of the result.
// Lanes are added as a tree of adjacent pairs, whatever kCount. kLevels: number of halvings left.
template <int kCount, int kLevels = hwy::CeilLog2(kLanes)>
HWY_INLINE V LaneSums(const V* v) {
  if constexpr (kLevels == 0) {
    return v[0];
  } else if constexpr (kCount == 1) {
    const V sums = PairSums(v[0], v[0]);
    return LaneSums<1, kLevels - 1>(&sums);
  } else {
    V half[kCount / 2];
    HWY_UNROLL(16) for (int64_t i = 0; i < kCount / 2; ++i) half[i] = PairSums(v[2 * i], v[2 * i + 1]);
    return LaneSums<kCount / 2, kLevels - 1>(half);
  }
}

// Computes y[r] = horizontal sum of v[r], plus bias[r] unless `bias` is null.
template <int kCount>
HWY_INLINE void StoreSums(const V* v, const float* bias, float* y) {
  constexpr int kPart = kCount < kLanes ? kCount : kLanes;
  HWY_UNROLL(16) for (int i = 0; i < kCount; i += kPart) {
    V sums = LaneSums<kPart>(v + i);
    if constexpr (kPart == kLanes) {
      if (bias != nullptr) sums = hn::Add(sums, hn::LoadU(F32(), bias + i));
      hn::StoreU(sums, F32(), y + i);
    } else {
      if (bias != nullptr) sums = hn::Add(sums, LoadPart(bias + i, kPart));
      StorePart(sums, y + i, kPart);
    }
  }
}

HWY_INLINE float Sum(V v) { return hn::GetLane(LaneSums<1>(&v)); }

// Computes y[i] = op(x[i]...), one vector at a time.
template <typename Op, typename... X>
HWY_INLINE void Map(int64_t n, float* y, Op op, const X*... x) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(op(LoadWeights(x + i)...), F32(), y + i);
  if (i < n) StorePart(op(LoadPart(x + i, n - i)...), y + i, n - i);
}

template <typename T>
void ToFloatAs(const void* x, int64_t n, float* y) {
  Map(
      n, y, [](V v) HWY_ATTR { return v; }, static_cast<const T*>(x));
}

void ToFloat(DType dtype, const void* x, int64_t n, float* y) {
  switch (dtype) {
    case DType::kF32:
      return ToFloatAs<float>(x, n, y);
    case DType::kF16:
      return ToFloatAs<hwy::float16_t>(x, n, y);
    case DType::kBF16:
      return ToFloatAs<hwy::bfloat16_t>(x, n, y);
  }
}

// Multiplies kRows weight rows by kInputs inputs. Each product is one chain of vector FMAs along the row, then one
// horizontal sum, for every tile shape.
template <int kRows, int kInputs, typename T>
HWY_INLINE void MatMulTile(const T* w, int64_t cols, const float* bias, const float* x, float* y, int64_t y_stride) {
  V sum[kInputs][kRows];
  HWY_UNROLL(16) for (int i = 0; i < kInputs; ++i) {
    HWY_UNROLL(16) for (int r = 0; r < kRows; ++r) sum[i][r] = hn::Zero(F32());
  }
  int64_t c = 0;
  for (; c + kLanes <= cols; c += kLanes) {
    V xs[kInputs];
    HWY_UNROLL(16) for (int i = 0; i < kInputs; ++i) xs[i] = hn::LoadU(F32(), x + i * cols + c);
    HWY_UNROLL(16) for (int r = 0; r < kRows; ++r) {
      const V ws = LoadWeights(w + r * cols + c);
      HWY_UNROLL(16) for (int i = 0; i < kInputs; ++i) sum[i][r] = hn::MulAdd(ws, xs[i], sum[i][r]);
    }
  }
  if (c < cols) {
    V xs[kInputs];
    for (int i = 0; i < kInputs; ++i) xs[i] = LoadPart(x + i * cols + c, cols - c);
    for (int r = 0; r < kRows; ++r) {
      const V ws = LoadPart(w + r * cols + c, cols - c);
      for (int i = 0; i < kInputs; ++i) sum[i][r] = hn::MulAdd(ws, xs[i], sum[i][r]);
    }
  }
  HWY_UNROLL(16) for (int i = 0; i < kInputs; ++i) StoreSums<kRows>(sum[i], bias, y + i * y_stride);
}

// Tile shapes that keep all sums in registers: 32 vector registers with AVX-512, otherwise 16.
constexpr int kManyInputs = kLanes >= 16 ? 4 : 2;
constexpr int kRowsForManyInputs = 4;
constexpr int kRowsForFewInputs = 8;

// Multiplies kRows weight rows by all inputs, at most kInputs at a time.
template <int kRows, int kInputs, typename T>
HWY_INLINE void MatMulRows(const T* w, int64_t cols, const float* bias, const float* x, int64_t m, float* y,
                           int64_t y_stride) {
  int64_t i = 0;
  for (; i + kInputs <= m; i += kInputs) {
    MatMulTile<kRows, kInputs>(w, cols, bias, x + i * cols, y + i * y_stride, y_stride);
  }
  if constexpr (kInputs > 1) {
    MatMulRows<kRows, kInputs / 2>(w, cols, bias, x + i * cols, m - i, y + i * y_stride, y_stride);
  }
}

template <typename T>
void MatMulAs(const MatrixView& view, const float* bias, const float* x, int64_t m, int64_t begin, int64_t end,
              float* y) {
  const T* const w = static_cast<const T*>(view.data);
  const auto tile_bias = [&](int64_t row) { return bias == nullptr ? nullptr : bias + row; };
  int64_t r = begin;
  if (m < kManyInputs) {
    for (; r + kRowsForFewInputs <= end; r += kRowsForFewInputs) {
      MatMulRows<kRowsForFewInputs, kManyInputs / 2>(w + r * view.cols, view.cols, tile_bias(r), x, m, y + r,
                                                     view.rows);
    }
  }
  for (; r + kRowsForManyInputs <= end; r += kRowsForManyInputs) {
    MatMulRows<kRowsForManyInputs, kManyInputs>(w + r * view.cols, view.cols, tile_bias(r), x, m, y + r, view.rows);
  }
  for (; r < end; ++r) {
    MatMulRows<1, kManyInputs>(w + r * view.cols, view.cols, tile_bias(r), x, m, y + r, view.rows);
  }
}

void MatMul(const MatrixView& w, const float* bias, const float* x, int64_t m, int64_t begin, int64_t end, float* y) {
  switch (w.dtype) {
    case DType::kF32:
      return MatMulAs<float>(w, bias, x, m, begin, end, y);
    case DType::kF16:
      return MatMulAs<hwy::float16_t>(w, bias, x, m, begin, end, y);
    case DType::kBF16:
      return MatMulAs<hwy::bfloat16_t>(w, bias, x, m, begin, end, y);
  }
}

constexpr int kPanelVectors = static_cast<int>(kPanel) / kLanes;

// Computes kRows output rows of kPanels panels. Each output is one FMA chain over the inputs per tap; the chains are
// added to the bias one by one. Short chains keep rounding errors small.
template <int kRows, int kPanels, typename T>
HWY_INLINE void ConvTile(const ConvView& conv, int64_t panel, const float* x, bool accumulate, float* y) {
  constexpr int kVectors = kPanels * kPanelVectors;
  const int64_t panel_size = conv.taps * conv.in * kPanel;
  const T* w = static_cast<const T*>(conv.weights) + panel * panel_size;
  V total[kRows][kVectors];
  HWY_UNROLL(16) for (int v = 0; v < kVectors; ++v) {
    const V bias = hn::LoadU(F32(), conv.bias + panel * kPanel + v * kLanes);
    HWY_UNROLL(16) for (int r = 0; r < kRows; ++r) total[r][v] = bias;
  }
  for (int64_t tap = 0; tap < conv.taps; ++tap) {
    const float* const row = x + tap * conv.dilation * conv.in;
    V sum[kRows][kVectors];
    HWY_UNROLL(16) for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(16) for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(F32());
    }
    for (int64_t c = 0; c < conv.in; ++c, w += kPanel) {
      V ws[kVectors];
      HWY_UNROLL(16) for (int v = 0; v < kVectors; ++v) {
        ws[v] = LoadWeights(w + (v / kPanelVectors) * panel_size + (v % kPanelVectors) * kLanes);
      }
      HWY_UNROLL(16) for (int r = 0; r < kRows; ++r) {
        const V xs = hn::Set(F32(), row[r * conv.in + c]);
        HWY_UNROLL(16) for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(ws[v], xs, sum[r][v]);
      }
    }
    HWY_UNROLL(16) for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(16) for (int v = 0; v < kVectors; ++v) total[r][v] = hn::Add(total[r][v], sum[r][v]);
    }
  }
  HWY_UNROLL(16) for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(16) for (int v = 0; v < kVectors; ++v) {
      const int64_t out = panel * kPanel + v * kLanes;
      const int64_t n = std::min<int64_t>(kLanes, conv.out - out);
      float* const to = y + r * conv.out + out;
      if (n == kLanes) {
        hn::StoreU(accumulate ? hn::Add(total[r][v], hn::LoadU(F32(), to)) : total[r][v], F32(), to);
      } else if (n > 0) {
        StorePart(accumulate ? hn::Add(total[r][v], LoadPart(to, n)) : total[r][v], to, n);
      }
    }
  }
}

template <int kRows, int kPanels, typename T>
HWY_INLINE int64_t ConvRows(const ConvView& conv, int64_t panel, const float* x, int64_t t, int64_t rows,
                            bool accumulate, float* y) {
  for (; t + kRows <= rows; t += kRows) {
    ConvTile<kRows, kPanels, T>(conv, panel, x + t * conv.in, accumulate, y + t * conv.out);
  }
  return t;
}

template <int kPanels, typename T>
HWY_INLINE void ConvPanels(const ConvView& conv, int64_t panel, const float* x, int64_t rows, bool accumulate,
                           float* y) {
  int64_t t = 0;
  if constexpr (kLanes >= 16 && kPanels == 1) t = ConvRows<16, kPanels, T>(conv, panel, x, t, rows, accumulate, y);
  if constexpr (kLanes >= 16) t = ConvRows<8, kPanels, T>(conv, panel, x, t, rows, accumulate, y);
  if constexpr (kLanes >= 8) t = ConvRows<4, kPanels, T>(conv, panel, x, t, rows, accumulate, y);
  t = ConvRows<2, kPanels, T>(conv, panel, x, t, rows, accumulate, y);
  ConvRows<1, kPanels, T>(conv, panel, x, t, rows, accumulate, y);
}

// Rows computed for all panels before the next rows, so that inputs and weights fit L1 and L2.
constexpr int64_t kConvRowBlock = 256;

template <typename T>
void ConvAs(const ConvView& conv, const float* x, int64_t rows, int64_t begin, int64_t end, bool accumulate, float* y) {
  for (int64_t t = 0; t < rows; t += kConvRowBlock) {
    const int64_t block = std::min(kConvRowBlock, rows - t);
    int64_t panel = begin;
    if constexpr (kLanes >= 16) {
      for (; panel + 2 <= end; panel += 2) {
        ConvPanels<2, T>(conv, panel, x + t * conv.in, block, accumulate, y + t * conv.out);
      }
    }
    for (; panel < end; ++panel) {
      ConvPanels<1, T>(conv, panel, x + t * conv.in, block, accumulate, y + t * conv.out);
    }
  }
}

void Conv(const ConvView& conv, const float* x, int64_t rows, int64_t begin, int64_t end, bool accumulate, float* y) {
  switch (conv.dtype) {
    case DType::kF32:
      return ConvAs<float>(conv, x, rows, begin, end, accumulate, y);
    case DType::kF16:
      return ConvAs<hwy::float16_t>(conv, x, rows, begin, end, accumulate, y);
    case DType::kBF16:
      return ConvAs<hwy::bfloat16_t>(conv, x, rows, begin, end, accumulate, y);
  }
}

void DepthwiseConv(const float* w, const float* bias, const float* x, int64_t taps, int64_t rows, int64_t channels,
                   float* y) {
  for (int64_t t = 0; t < rows; ++t) {
    float* const row = y + t * channels;
    memcpy(row, bias, static_cast<size_t>(channels) * sizeof(float));
    for (int64_t j = 0; j < taps; ++j) {
      Map(
          channels, row, [](V sum, V ws, V xs) HWY_ATTR { return hn::MulAdd(ws, xs, sum); }, row, w + j * channels,
          x + (t + j) * channels);
    }
  }
}

// Returns the sum of op(x[i]...) over n elements. op(0...) must be 0.
template <typename Op, typename... X>
HWY_INLINE float SumOf(int64_t n, Op op, const X*... x) {
  V sum = hn::Zero(F32());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) sum = op(sum, hn::LoadU(F32(), x + i)...);
  if (i < n) sum = op(sum, LoadPart(x + i, n - i)...);
  return Sum(sum);
}

void RmsNorm(const float* x, const float* weight, float eps, int64_t n, float* y) {
  const float squares = SumOf(
      n, [](V sum, V xs) HWY_ATTR { return hn::MulAdd(xs, xs, sum); }, x);
  const V scale = hn::Set(F32(), 1.0F / std::sqrt(squares / static_cast<float>(n) + eps));
  Map(
      n, y, [=](V xs, V ws) HWY_ATTR { return hn::Mul(hn::Mul(xs, scale), ws); }, x, weight);
}

void LayerNorm(const float* x, const float* weight, const float* bias, float eps, int64_t n, float* y) {
  const float mean = SumOf(
                         n, [](V sum, V xs) HWY_ATTR { return hn::Add(sum, xs); }, x) /
                     static_cast<float>(n);
  const V means = hn::Set(F32(), mean);
  Map(
      n, y, [=](V xs) HWY_ATTR { return hn::Sub(xs, means); }, x);
  const float squares = SumOf(
      n, [](V sum, V xs) HWY_ATTR { return hn::MulAdd(xs, xs, sum); }, y);
  const V scale = hn::Set(F32(), 1.0F / std::sqrt(squares / static_cast<float>(n) + eps));
  Map(
      n, y, [=](V xs, V ws, V bs) HWY_ATTR { return hn::MulAdd(hn::Mul(xs, scale), ws, bs); }, y, weight, bias);
}

void Rotate(const float* cosines, const float* sines, int64_t half, float* x) {
  const auto rotate = [](V low, V high, V cs, V sn, V* to_low, V* to_high) HWY_ATTR {
    *to_low = hn::NegMulAdd(high, sn, hn::Mul(low, cs));
    *to_high = hn::MulAdd(low, sn, hn::Mul(high, cs));
  };
  float* const high = x + half;
  V to_low, to_high;
  int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    rotate(hn::LoadU(F32(), x + i), hn::LoadU(F32(), high + i), hn::LoadU(F32(), cosines + i),
           hn::LoadU(F32(), sines + i), &to_low, &to_high);
    hn::StoreU(to_low, F32(), x + i);
    hn::StoreU(to_high, F32(), high + i);
  }
  if (i < half) {
    const int64_t n = half - i;
    rotate(LoadPart(x + i, n), LoadPart(high + i, n), LoadPart(cosines + i, n), LoadPart(sines + i, n), &to_low,
           &to_high);
    StorePart(to_low, x + i, n);
    StorePart(to_high, high + i, n);
  }
}

// Computes x = exp(x - largest), in place. Returns the sum.
HWY_INLINE float ExpInPlace(float largest, int64_t n, float* x) {
  const V shift = hn::Set(F32(), largest);
  Map(
      n, x, [=](V xs) HWY_ATTR { return hn::Exp(F32(), hn::Sub(xs, shift)); }, x);
  return SumOf(
      n, [](V sum, V xs) HWY_ATTR { return hn::Add(sum, xs); }, x);
}

void Attend(const float* q, std::span<const KeyValueSpan> spans, int64_t stride, int64_t head_dim, float scale,
            float* scores, float* y) {
  int64_t count = 0;
  float largest = -std::numeric_limits<float>::infinity();
  float poison = 0;  // becomes NaN with the first NaN score, which neither max() nor Exp() would propagate
  for (const KeyValueSpan& span : spans) {
    for (int64_t i = 0; i < span.count; ++i, ++count) {
      scores[count] = scale * SumOf(
                                  head_dim, [](V sum, V qs, V ks) HWY_ATTR { return hn::MulAdd(qs, ks, sum); }, q,
                                  span.keys + i * stride);
      largest = std::max(largest, scores[count]);
      poison += 0.0F * scores[count];
    }
  }
  const float inverse = 1.0F / ExpInPlace(largest, count, scores) + poison;

  // Slices of the head, small enough to stay in registers over all positions.
  constexpr int64_t kSlice = 4;
  int64_t d = 0;
  for (; d + kSlice * kLanes <= head_dim; d += kSlice * kLanes) {
    V sum[kSlice];
    HWY_UNROLL(16) for (int s = 0; s < kSlice; ++s) sum[s] = hn::Zero(F32());
    const float* score = scores;
    for (const KeyValueSpan& span : spans) {
      for (int64_t i = 0; i < span.count; ++i, ++score) {
        const V weight = hn::Set(F32(), *score);
        const float* const values = span.values + i * stride + d;
        HWY_UNROLL(16) for (int s = 0; s < kSlice; ++s) {
          sum[s] = hn::MulAdd(weight, hn::LoadU(F32(), values + s * kLanes), sum[s]);
        }
      }
    }
    HWY_UNROLL(16) for (int s = 0; s < kSlice; ++s) {
      hn::StoreU(hn::Mul(sum[s], hn::Set(F32(), inverse)), F32(), y + d + s * kLanes);
    }
  }
  for (; d < head_dim; d += kLanes) {
    const int64_t n = std::min<int64_t>(kLanes, head_dim - d);
    V sum = hn::Zero(F32());
    const float* score = scores;
    for (const KeyValueSpan& span : spans) {
      for (int64_t i = 0; i < span.count; ++i, ++score) {
        sum = hn::MulAdd(hn::Set(F32(), *score), LoadPart(span.values + i * stride + d, n), sum);
      }
    }
    StorePart(hn::Mul(sum, hn::Set(F32(), inverse)), y + d, n);
  }
}

// Computes x / (1 + exp(-x)). The largest argument that Exp() takes gives infinity, so the result is 0 from there on.
HWY_INLINE V SiluOf(V x) {
  const V one = hn::Set(F32(), 1.0F);
  const V exponent = hn::Min(hn::Neg(x), hn::Set(F32(), 104.0F));
  return hn::Div(x, hn::Add(one, hn::Exp(F32(), exponent)));
}

void Silu(const float* x, int64_t n, float* y) {
  Map(
      n, y, [](V xs) HWY_ATTR { return SiluOf(xs); }, x);
}

void SiluMul(const float* gate, const float* up, int64_t n, float* y) {
  Map(
      n, y, [](V gs, V us) HWY_ATTR { return hn::Mul(SiluOf(gs), us); }, gate, up);
}

void Elu(const float* x, int64_t n, float* y) {
  Map(
      n, y,
      [](V xs) HWY_ATTR {
        // Below the smallest argument the result is -1. The vector function would overflow there.
        const V negative = hn::Max(hn::Min(xs, hn::Zero(F32())), hn::Set(F32(), -80.0F));
        return hn::IfThenElse(hn::Gt(xs, hn::Zero(F32())), xs, hn::Expm1(F32(), negative));
      },
      x);
}

// Largest argument for which the vector sine is accurate.
constexpr float kLargestSineArgument = 39000.0F;

HWY_INLINE V SineOf(V x) {
  const V sine = hn::Sin(F32(), x);
  const auto large = hn::Gt(hn::Abs(x), hn::Set(F32(), kLargestSineArgument));
  if (HWY_LIKELY(hn::AllFalse(F32(), large))) return sine;
  alignas(64) float lanes[kLanes];
  hn::StoreU(x, F32(), lanes);
  for (float& lane : lanes) lane = std::sin(lane);
  return hn::IfThenElse(large, hn::LoadU(F32(), lanes), sine);
}

void SnakeBeta(const float* a, const float* inverse_b, const float* x, int64_t rows, int64_t channels, float* y) {
  for (int64_t t = 0; t < rows; ++t) {
    Map(
        channels, y + t * channels,
        [](V xs, V as, V bs) HWY_ATTR {
          const V sine = SineOf(hn::Mul(xs, as));
          return hn::MulAdd(bs, hn::Mul(sine, sine), xs);
        },
        x + t * channels, a, inverse_b);
  }
}

void Add(const float* x, int64_t n, float* y) {
  Map(
      n, y, [](V xs, V ys) HWY_ATTR { return hn::Add(ys, xs); }, x, y);
}

void AddScaled(const float* scale, const float* x, int64_t n, float* y) {
  Map(
      n, y, [](V ss, V xs, V ys) HWY_ATTR { return hn::MulAdd(ss, xs, ys); }, scale, x, y);
}

}  // namespace qtts::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qtts::cpu {

HWY_EXPORT(ToFloat);
HWY_EXPORT(MatMul);
HWY_EXPORT(Conv);
HWY_EXPORT(DepthwiseConv);
HWY_EXPORT(RmsNorm);
HWY_EXPORT(LayerNorm);
HWY_EXPORT(Rotate);
HWY_EXPORT(Attend);
HWY_EXPORT(Silu);
HWY_EXPORT(SiluMul);
HWY_EXPORT(Elu);
HWY_EXPORT(SnakeBeta);
HWY_EXPORT(Add);
HWY_EXPORT(AddScaled);

void ToFloat(DType dtype, const void* x, int64_t n, float* y) { HWY_DYNAMIC_DISPATCH(ToFloat)(dtype, x, n, y); }

void MatMul(const MatrixView& w, const float* bias, const float* x, int64_t m, int64_t begin, int64_t end, float* y) {
  HWY_DYNAMIC_DISPATCH(MatMul)(w, bias, x, m, begin, end, y);
}

void Conv(const ConvView& conv, const float* x, int64_t rows, int64_t begin, int64_t end, bool accumulate, float* y) {
  HWY_DYNAMIC_DISPATCH(Conv)(conv, x, rows, begin, end, accumulate, y);
}

void DepthwiseConv(const float* w, const float* bias, const float* x, int64_t taps, int64_t rows, int64_t channels,
                   float* y) {
  HWY_DYNAMIC_DISPATCH(DepthwiseConv)(w, bias, x, taps, rows, channels, y);
}

void RmsNorm(const float* x, const float* weight, float eps, int64_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(RmsNorm)(x, weight, eps, n, y);
}

void LayerNorm(const float* x, const float* weight, const float* bias, float eps, int64_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(LayerNorm)(x, weight, bias, eps, n, y);
}

void Rotate(const float* cosines, const float* sines, int64_t half, float* x) {
  HWY_DYNAMIC_DISPATCH(Rotate)(cosines, sines, half, x);
}

void Attend(const float* q, std::span<const KeyValueSpan> spans, int64_t stride, int64_t head_dim, float scale,
            float* scores, float* y) {
  HWY_DYNAMIC_DISPATCH(Attend)(q, spans, stride, head_dim, scale, scores, y);
}

void Silu(const float* x, int64_t n, float* y) { HWY_DYNAMIC_DISPATCH(Silu)(x, n, y); }

void SiluMul(const float* gate, const float* up, int64_t n, float* y) { HWY_DYNAMIC_DISPATCH(SiluMul)(gate, up, n, y); }

void Gelu(const float* x, int64_t n, float* y) {
  constexpr float kSqrtHalf = 0.70710678F;
  for (int64_t i = 0; i < n; ++i) y[i] = 0.5F * x[i] * (1.0F + std::erf(x[i] * kSqrtHalf));
}

void Elu(const float* x, int64_t n, float* y) { HWY_DYNAMIC_DISPATCH(Elu)(x, n, y); }

void SnakeBeta(const float* a, const float* inverse_b, const float* x, int64_t rows, int64_t channels, float* y) {
  HWY_DYNAMIC_DISPATCH(SnakeBeta)(a, inverse_b, x, rows, channels, y);
}

void Add(const float* x, int64_t n, float* y) { HWY_DYNAMIC_DISPATCH(Add)(x, n, y); }

void AddScaled(const float* scale, const float* x, int64_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(AddScaled)(scale, x, n, y);
}

void ClampUnit(int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) {
    if (y[i] > 1.0F) y[i] = 1.0F;
    if (y[i] < -1.0F) y[i] = -1.0F;
  }
}

}  // namespace qtts::cpu
#endif  // HWY_ONCE
