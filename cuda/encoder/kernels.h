// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_ENCODER_KERNELS_H_
#define QTTS_CUDA_ENCODER_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "checkpoint/dtype.h"

// Kernels of the two networks that turn a recording into a voice. They process whole recordings. A signal is an F32
// matrix, time by channels, with rows `stride` floats apart, so a range of channels is also a signal. Arithmetic is
// F32, or F64 for sums over time. Every value is computed in one fixed order for all lengths, so equal inputs give
// equal bits.
//
// Each function enqueues one kernel on `stream` and returns the error of the launch. Pointers are device pointers.
namespace qtts::cuda::encoder {

struct Signal {
  float* data = nullptr;
  int64_t stride = 0;  // floats from row to row
};
struct ConstSignal {
  const float* data = nullptr;
  int64_t stride = 0;

  ConstSignal() = default;
  ConstSignal(const float* first, int64_t row_stride) : data(first), stride(row_stride) {}
  ConstSignal(const Signal& signal) : data(signal.data), stride(signal.stride) {}
};

// Padding before the first and after the last row of a convolution.
enum class Border : int32_t {
  kZeros,
  kReflect,  // the end itself not repeated; no further than the signal is long
  kRepeat,   // the first and the last row
};

enum class Activation : int32_t { kNone, kRelu, kTanhOfRelu, kSigmoid, kGelu, kElu };

// A convolution, or with one tap a linear layer:
//   sum[t][o] = bias[o] + sum over taps j and channels c of weights[j][c][o] x[t * step + j * dilation - before][c]
//   y[t][o] = activation(residual[t][o] + scale[o] * sum[t][o])
struct Convolution {
  ConstSignal x;       // [x_rows][in]
  ConstSignal addend;  // null data: nothing; else added to x
  bool elu_input = false;
  Border border = Border::kZeros;
  int64_t x_rows = 0;
  int in = 0;
  int taps = 1;
  int step = 1;
  int dilation = 1;
  int before = 0;
  const float* weights = nullptr;  // [taps][in][out]
  const float* bias = nullptr;     // null: none
  int out = 0;
  int64_t rows = 0;
  ConstSignal residual;          // null data: none; may be y
  const float* scale = nullptr;  // null: 1
  Activation activation = Activation::kNone;
  Signal y;  // [rows][out], no part of x or addend
};
cudaError_t Convolve(const Convolution& convolution, cudaStream_t stream);

// The log-mel spectrogram (backend/mel_tables.h), with its arithmetic in F64, operation by operation that of the CPU.
struct Spectrogram {
  const float* pcm = nullptr;  // [samples]
  int64_t samples = 0;
  const float* window = nullptr;   // [MelTables::kLength]
  const double2* roots = nullptr;  // [MelTables::kLength / 2]
  // Band b weighs frequencies first[b] .. with weights[begin[b]] .. weights[begin[b + 1] - 1].
  const int32_t* first = nullptr;
  const int32_t* begin = nullptr;
  const float* weights = nullptr;
  int bins = 0;
  int64_t frames = 0;     // MelTables::Frames(samples)
  float* mels = nullptr;  // [frames][bins]
};
cudaError_t ComputeMels(const Spectrogram& spectrogram, cudaStream_t stream);

// Mean over time of each channel, and its standard deviation (the root of no less than 1e-12). With scores, rows
// weigh by their softmax over time, channel by channel.
struct Statistics {
  ConstSignal x;       // [rows][channels], at least one row
  ConstSignal scores;  // the same; null data: all rows weigh the same
  int64_t rows = 0;
  int channels = 0;
  float* means = nullptr;       // [channels]
  float* deviations = nullptr;  // [channels]; null: not wanted
};
cudaError_t ComputeStatistics(const Statistics& statistics, cudaStream_t stream);

// y[t][c] = residual[t][c] + gates[c] * x[t][c].
struct Gating {
  ConstSignal x, residual;
  const float* gates = nullptr;
  int64_t rows = 0;
  int channels = 0;
  Signal y;
};
cudaError_t Gate(const Gating& gating, cudaStream_t stream);

// y = (x - mean) / sqrt(variance + eps) * weight + bias, row by row.
struct LayerNorm {
  ConstSignal x;
  const float* weight = nullptr;
  const float* bias = nullptr;
  float eps = 0;
  int64_t rows = 0;
  int channels = 0;
  Signal y;
};
cudaError_t Normalize(const LayerNorm& norm, cudaStream_t stream);

// Causal attention over the whole past: row t attends to rows 0 .. t.
struct Attention {
  Signal qkv;  // [rows][3 * heads * head_dim]: queries, keys, values
  int64_t rows = 0;
  int heads = 0;
  int head_dim = 0;               // even
  const float* speeds = nullptr;  // [head_dim / 2] RoPE's angles of position 1
  Signal y;                       // [rows][heads * head_dim]
};
// Applies RoPE to queries and keys, in place; pairs are (i, i + head_dim / 2).
cudaError_t Rotate(const Attention& attention, cudaStream_t stream);
// Returns the maximum number of rows of Attend().
int64_t MaxAttentionRows(int head_dim);
// Attends; queries and keys have been rotated.
cudaError_t Attend(const Attention& attention, cudaStream_t stream);

// Residual vector quantisation: from each group the nearest codeword, the first of equals, which is then taken off.
// The first group quantises `semantic`, the others together `acoustic`.
struct Quantization {
  const float* semantic = nullptr;   // [frames][dim]
  const float* acoustic = nullptr;   // [frames][dim]
  const float* codewords = nullptr;  // [groups][dim][entries]
  const float* squares = nullptr;    // [groups][entries] squared lengths
  int64_t frames = 0;
  int groups = 0;
  int dim = 0;  // at most kMaxCodewordDim
  int entries = 0;
  int32_t* codes = nullptr;  // [frames][groups]
};
inline constexpr int kMaxCodewordDim = 8192;
cudaError_t Quantize(const Quantization& quantization, cudaStream_t stream);

// ---- At load.

// A tensor of any float type, [out][in][taps], as part of a Convolution's weights, [taps][in][to_out]: its outputs
// become those from `first` on.
struct Packing {
  const void* from = nullptr;
  DType dtype = DType::kF32;
  int out = 0, in = 0, taps = 1;
  float* to = nullptr;
  int to_out = 0, first = 0;
};
cudaError_t Pack(const Packing& packing, cudaStream_t stream);

// A codebook as Quantization has it, of the sums and counts it was trained with, both F32:
// codeword[e] = sums[e] / max(usage[e], 1e-5).
struct CodebookPacking {
  const float* sums = nullptr;   // [entries][dim]
  const float* usage = nullptr;  // [entries]
  int entries = 0, dim = 0;
  float* codewords = nullptr;  // [dim][entries]
  float* squares = nullptr;    // [entries]
};
cudaError_t PackCodebook(const CodebookPacking& packing, cudaStream_t stream);

}  // namespace qtts::cuda::encoder

#endif  // QTTS_CUDA_ENCODER_KERNELS_H_
