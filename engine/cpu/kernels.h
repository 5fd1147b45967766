// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_KERNELS_H_
#define QTTS_CPU_KERNELS_H_

#include <cstdint>
#include <span>

#include "checkpoint/safetensors.h"

// F32 kernels of the CPU backend. They are compiled for several instruction sets; the best one of the machine is
// called. Weights stay in the dtype of the file.
//
// Each value is computed in one fixed order, which depends on the sizes of one row only, not on the number of rows or
// on the part of a range that a call covers. Streaming therefore equals whole-utterance decoding, and a batch equals
// its members, bit for bit. Different instruction sets round differently.
//
// Arrays of one call must not overlap unless a comment allows it. Alignment is not needed. Pure functions, thread-safe.
namespace qtts::cpu {

// Computes y[i] = x[i] as F32, for n elements of `dtype` at x.
void ToFloat(DType dtype, const void* x, int64_t n, float* y);

// A weight matrix as stored in its file: [rows][cols].
struct MatrixView {
  DType dtype = DType::kF32;
  const void* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
};

// Computes y[i][r] = bias[r] + sum over c of w[r][c] x[i][c], for the rows r in [begin, end) and i < m.
// x is [m][w.cols], y [m][w.rows]; `bias` [w.rows] may be null.
void MatMul(const MatrixView& w, const float* bias, const float* x, int64_t m, int64_t begin, int64_t end, float* y);

// Output channels per panel of packed convolution weights.
inline constexpr int64_t kPanel = 16;

// A causal convolution over time-major rows. Weights are stored as [panel][tap][in][kPanel]. The last panel is padded
// with zeros, as is the bias [panels * kPanel].
struct ConvView {
  DType dtype = DType::kF32;
  const void* weights = nullptr;
  const float* bias = nullptr;
  int64_t in = 0;
  int64_t out = 0;
  int64_t taps = 0;
  int64_t dilation = 1;

  int64_t panels() const { return (out + kPanel - 1) / kPanel; }
};

// Computes y[t][o] = bias[o] + sum over taps j and inputs c of w[o][j][c] x[t + j * dilation][c], for t < rows and the
// outputs of panels [begin, end). x is [rows + (taps - 1) * dilation][in] and starts (taps - 1) * dilation rows before
// the first output row's own input. y is [rows][out]. With `accumulate`, adds to y.
void Conv(const ConvView& conv, const float* x, int64_t rows, int64_t begin, int64_t end, bool accumulate, float* y);

// Computes a depthwise convolution: y[t][c] = bias[c] + sum over j of w[j][c] x[t + j][c].
void DepthwiseConv(const float* w, const float* bias, const float* x, int64_t taps, int64_t rows, int64_t channels,
                   float* y);

// Computes y = x / sqrt(mean(x^2) + eps) * weight. y may be x.
void RmsNorm(const float* x, const float* weight, float eps, int64_t n, float* y);

// Computes y = (x - mean) / sqrt(variance + eps) * weight + bias. y may be x.
void LayerNorm(const float* x, const float* weight, const float* bias, float eps, int64_t n, float* y);

// Rotates the pairs (x[i], x[i + half]) in place, by the angles with these cosines and sines.
void Rotate(const float* cosines, const float* sines, int64_t half, float* x);

// Keys and values of consecutive positions. Rows are `stride` floats apart.
struct KeyValueSpan {
  const float* keys = nullptr;
  const float* values = nullptr;
  int64_t count = 0;
};

// Computes the attention of one query over all positions of `spans`, in order: y = sum softmax(scale q.k) v. q and y
// are [head_dim]. `scores` is scratch, one float per position.
void Attend(const float* q, std::span<const KeyValueSpan> spans, int64_t stride, int64_t head_dim, float scale,
            float* scores, float* y);

// Computes y = x / (1 + exp(-x)). y may be x.
void Silu(const float* x, int64_t n, float* y);

// Computes y = silu(gate) * up. y may be gate or up.
void SiluMul(const float* gate, const float* up, int64_t n, float* y);

// Computes y = x/2 (1 + erf(x / sqrt 2)), the exact GELU. y may be x.
void Gelu(const float* x, int64_t n, float* y);

// Computes y = x where x > 0, else exp(x) - 1. y may be x.
void Elu(const float* x, int64_t n, float* y);

// Computes y = x + inverse_b * sin^2(a x) channel by channel, for [rows][channels]. y may be x.
void SnakeBeta(const float* a, const float* inverse_b, const float* x, int64_t rows, int64_t channels, float* y);

// Computes y += x.
void Add(const float* x, int64_t n, float* y);

// Computes y += scale * x, element by element.
void AddScaled(const float* scale, const float* x, int64_t n, float* y);

// Clamps y to [-1, 1]. NaN stays NaN.
void ClampUnit(int64_t n, float* y);

}  // namespace qtts::cpu

#endif  // QTTS_CPU_KERNELS_H_
