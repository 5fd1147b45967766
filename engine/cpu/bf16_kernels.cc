// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/bf16_kernels.h"

#include <hwy/base.h>

// Written with x86 intrinsics, since Highway 1.0 has no target with this instruction. The functions are compiled for
// CPUs that have it; HasBF16Products() checks for it at run time.
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace qtts::cpu {

#if defined(__x86_64__)

namespace {

#define QTTS_BF16_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,f16c")))
#define QTTS_BF16_INLINE QTTS_BF16_TARGET __attribute__((always_inline)) inline

constexpr int64_t kPairs = 32;  // numbers per vector

// Loads the numbers at p whose bits are set in `mask`; the others are zero.
QTTS_BF16_INLINE __m512bh Load(const uint16_t* p, __mmask32 mask) {
  return reinterpret_cast<__m512bh>(_mm512_maskz_loadu_epi16(mask, p));
}

// Computes sum += w x over the columns set in `mask`, for each weight row and input.
template <int kRows, int kInputs>
QTTS_BF16_INLINE void AddProducts(const uint16_t* w, const uint16_t* x, int64_t cols, __mmask32 mask,
                                  __m512 (*sum)[kRows]) {
  __m512bh xs[kInputs];
  HWY_UNROLL(16) for (int i = 0; i < kInputs; ++i) xs[i] = Load(x + i * cols, mask);
  HWY_UNROLL(16) for (int r = 0; r < kRows; ++r) {
    const __m512bh ws = Load(w + r * cols, mask);
    HWY_UNROLL(16) for (int i = 0; i < kInputs; ++i) sum[i][r] = _mm512_dpbf16_ps(sum[i][r], ws, xs[i]);
  }
}

// Returns the sum of the lanes, as a tree. Written out because GCC 12 warns in its own reduction and in unmasked
// shuffles.
QTTS_BF16_INLINE float SumOf(__m512 v) {
  constexpr __mmask16 kAll = 0xFFFF;
  v = _mm512_add_ps(v, _mm512_maskz_shuffle_f32x4(kAll, v, v, 0x4E));
  v = _mm512_add_ps(v, _mm512_maskz_shuffle_f32x4(kAll, v, v, 0xB1));
  v = _mm512_add_ps(v, _mm512_maskz_permute_ps(kAll, v, 0x4E));
  v = _mm512_add_ps(v, _mm512_maskz_permute_ps(kAll, v, 0xB1));
  return _mm512_cvtss_f32(v);
}

// Multiplies kRows weight rows by kInputs inputs. Each product is one chain of dot-product instructions along the row,
// then one horizontal sum, for every tile shape.
template <int kRows, int kInputs>
QTTS_BF16_INLINE void Tile(const uint16_t* w, int64_t cols, const float* bias, const uint16_t* x, float* y,
                           int64_t y_stride) {
  __m512 sum[kInputs][kRows];
  HWY_UNROLL(16) for (int i = 0; i < kInputs; ++i) {
    HWY_UNROLL(16) for (int r = 0; r < kRows; ++r) sum[i][r] = _mm512_setzero_ps();
  }
  constexpr __mmask32 kAll = 0xFFFFFFFFU;
  int64_t c = 0;
  for (; c + kPairs <= cols; c += kPairs) AddProducts<kRows, kInputs>(w + c, x + c, cols, kAll, sum);
  if (c < cols) AddProducts<kRows, kInputs>(w + c, x + c, cols, (1U << (cols - c)) - 1, sum);
  HWY_UNROLL(16) for (int i = 0; i < kInputs; ++i) {
    HWY_UNROLL(16) for (int r = 0; r < kRows; ++r) {
      y[i * y_stride + r] = SumOf(sum[i][r]) + (bias == nullptr ? 0.0F : bias[r]);
    }
  }
}

template <int kRows, int kInputs>
QTTS_BF16_INLINE void Inputs(const uint16_t* w, int64_t cols, const float* bias, const uint16_t* x, int64_t m, float* y,
                             int64_t y_stride) {
  int64_t i = 0;
  for (; i + kInputs <= m; i += kInputs) Tile<kRows, kInputs>(w, cols, bias, x + i * cols, y + i * y_stride, y_stride);
  for (; i < m; ++i) Tile<kRows, 1>(w, cols, bias, x + i * cols, y + i * y_stride, y_stride);
}

QTTS_BF16_TARGET void MatMul(const uint16_t* w, int64_t rows, int64_t cols, const float* bias, const uint16_t* x,
                             int64_t m, int64_t begin, int64_t end, float* y) {
  constexpr int kRowsAtOnce = 4;
  const auto bias_of = [&](int64_t row) { return bias == nullptr ? nullptr : bias + row; };
  int64_t r = begin;
  for (; r + kRowsAtOnce <= end; r += kRowsAtOnce) {
    Inputs<kRowsAtOnce, 4>(w + r * cols, cols, bias_of(r), x, m, y + r, rows);
  }
  for (; r < end; ++r) Inputs<1, 4>(w + r * cols, cols, bias_of(r), x, m, y + r, rows);
}

QTTS_BF16_TARGET void Convert(const float* x, int64_t n, uint16_t* y) {
  constexpr int64_t kFloats = 16;
  for (int64_t i = 0; i < n; i += kFloats) {
    const __mmask16 mask = n - i >= kFloats ? 0xFFFF : static_cast<__mmask16>((1U << (n - i)) - 1);
    const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, x + i));
    _mm256_mask_storeu_epi16(y + i, mask, reinterpret_cast<__m256i>(rounded));
  }
}

}  // namespace

bool HasBF16Products() {
  return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

void ToBF16(const float* x, int64_t n, uint16_t* y) { Convert(x, n, y); }

void BF16MatMul(const uint16_t* w, int64_t rows, int64_t cols, const float* bias, const uint16_t* x, int64_t m,
                int64_t begin, int64_t end, float* y) {
  MatMul(w, rows, cols, bias, x, m, begin, end, y);
}

#else

bool HasBF16Products() { return false; }
void ToBF16(const float* /*x*/, int64_t /*n*/, uint16_t* /*y*/) {}
void BF16MatMul(const uint16_t* /*w*/, int64_t /*rows*/, int64_t /*cols*/, const float* /*bias*/, const uint16_t* /*x*/,
                int64_t /*m*/, int64_t /*begin*/, int64_t /*end*/, float* /*y*/) {}

#endif

}  // namespace qtts::cpu
