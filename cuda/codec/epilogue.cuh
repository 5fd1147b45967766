// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CODEC_EPILOGUE_CUH_
#define QTTS_CUDA_CODEC_EPILOGUE_CUH_

#include <type_traits>

#include "codec/device.cuh"
#include "codec/gemm.h"

// The epilogue of all matrix products, and the stream of each column. All products share this code, so that they give
// the same bits. Where a multiplication comes before an addition the code says whether they are rounded together: a
// compiler that chooses could choose differently for each kernel.
namespace qtts::cuda::codec {

// The stream and time step of a column; frame < 0: nothing to do.
struct Column {
  std::byte* state;
  int32_t batch_row;
  int32_t time;
  int32_t frame;
};

__device__ __forceinline__ Column ColumnOf(const GemmArgs& a, int column) {
  if (column >= a.geometry.columns) return {nullptr, 0, 0, -1};
  const int b = Divide(column, a.x.by_rows);
  return {LoadState(a.batch.states, b), b, column - b * a.x.rows, __ldcg(a.batch.frames + b)};
}

__device__ __forceinline__ float SumOfSquares(float4 v) {
  return fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.x, v.x, __fmul_rn(v.y, v.y))));
}

// Computes 1 / root mean square of rms_input of kCount columns, whose loads do not wait for each other. Called by whole
// warps. Columns beyond the last one repeat it.
template <int kCount>
__device__ __forceinline__ void InverseRms(const GemmArgs& a, int first_column, float (&to)[kCount]) {
  const float4* x[kCount];
  float sums[kCount] = {};
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
    const int column = min(first_column + n, a.geometry.columns - 1);
    x[n] = reinterpret_cast<const float4*>(a.epilogue.rms_input + static_cast<int64_t>(column) * a.x.channels);
  }
  for (int i = static_cast<int>(threadIdx.x) % 32; i < a.x.channels / 4; i += 32) {
    float4 v[kCount];
#pragma unroll
    for (int n = 0; n < kCount; ++n) v[n] = __ldcg(x[n] + i);
#pragma unroll
    for (int n = 0; n < kCount; ++n) sums[n] = __fadd_rn(sums[n], SumOfSquares(v[n]));
  }
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
    to[n] = 1.0F / sqrtf(WarpSum(sums[n]) / static_cast<float>(a.epilogue.rms_width) + a.epilogue.rms_eps);
  }
}

// Fills `places` of a block's `count` columns from `first`; called by all threads.
__device__ __forceinline__ void PlaceColumns(const GemmArgs& a, int first, int count, Column* places) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    places[i] = ColumnOf(a, first + i);
  }
}

// Fills `places`, and `rows` [tap][column] with the address of the input row for every tap and column: 0 where there is
// none, the lowest bit set where it lies in the history. Looking them up keeps the loops short: a kernel this brief
// waits for its own instructions.
template <int kCount>
__device__ __forceinline__ void PlaceRows(const GemmArgs& a, int first, Column* places, uintptr_t* rows) {
  for (int i = static_cast<int>(threadIdx.x); i < a.geometry.taps * kCount; i += static_cast<int>(blockDim.x)) {
    const int tap = i / kCount;
    const int lag = (a.geometry.taps - 1 - tap) * a.geometry.dilation;
    const Column c = ColumnOf(a, first + i % kCount);
    const __half* const row =
        c.frame < 0 ? nullptr : SourceRow<__half>(a.x, c.batch_row, c.time, lag, c.state, c.frame);
    rows[i] = row == nullptr ? 0 : reinterpret_cast<uintptr_t>(row) + (c.time < lag ? 1 : 0);
    if (tap == 0) places[i] = c;
  }
}

// Fills `rows` alone, and loads a column's stream only for rows of earlier frames. Rows of a stream that has nothing to
// do are among them; nothing that is made of them is stored.
template <int kCount>
__device__ __forceinline__ void PlaceRowsAlone(const GemmArgs& a, int first, uintptr_t* rows) {
  for (int i = static_cast<int>(threadIdx.x); i < a.geometry.taps * kCount; i += static_cast<int>(blockDim.x)) {
    const int tap = i / kCount;
    const int lag = (a.geometry.taps - 1 - tap) * a.geometry.dilation;
    const int column = first + i - tap * kCount;
    const int b = Divide(column, a.x.by_rows);
    const int time = column - b * a.x.rows;
    uintptr_t row = 0;
    if (column < a.geometry.columns) {
      if (time >= lag) {
        row = reinterpret_cast<uintptr_t>(static_cast<const __half*>(a.x.data) +
                                          static_cast<int64_t>(column - lag) * a.x.channels);
      } else if (const Column c = ColumnOf(a, column); c.frame >= 0) {
        const __half* const past = SourceRow<__half>(a.x, b, time, lag, c.state, c.frame);
        if (past != nullptr) row = reinterpret_cast<uintptr_t>(past) + 1;
      }
    }
    rows[i] = row;
  }
}

// Fills `column_scale` where the input is to be normalised; called by all threads.
__device__ __forceinline__ void ScaleColumns(const GemmArgs& a, int first, int count, float* column_scale) {
  if (a.epilogue.rms_input == nullptr) return;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int end = min(count, a.geometry.columns - first);
  for (int i = static_cast<int>(threadIdx.x) / 32; i < end; i += warps) {
    float scale[1];
    InverseRms(a, first + i, scale);
    if (threadIdx.x % 32 == 0) column_scale[i] = scale[0];
  }
}

__device__ __forceinline__ float4 Times(float4 a, float4 b) { return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w}; }
__device__ __forceinline__ float4 Times(float4 a, float b) { return {a.x * b, a.y * b, a.z * b, a.w * b}; }
__device__ __forceinline__ float4 Plus(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }
// Adds without fusing a multiplication that may have come before.
__device__ __forceinline__ float4 PlusRounded(float4 a, float4 b) {
  return {__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y), __fadd_rn(a.z, b.z), __fadd_rn(a.w, b.w)};
}
__device__ __forceinline__ float4 Load4(const float* p) { return *reinterpret_cast<const float4*>(p); }

__device__ __forceinline__ float Gelu(float x) { return __fmul_rn(0.5F * x, __fadd_rn(1.0F, erff(x * 0.707106781F))); }
__device__ __forceinline__ float Silu(float x) { return x / (1.0F + expf(-x)); }

// A block's per-output constants, in shared memory, neutral where the product has none. kRows: the block's maximum
// outputs, before gating.
template <int kRows>
struct Constants {
  float weight_scale[kRows];
  float bias[kRows];
  float scale[kRows];
  float snake_a[kRows];
  float snake_inverse_b[kRows];
};

template <int kRows>
__device__ __forceinline__ void PlaceConstants(const GemmArgs& a, int first_tile, int tiles, Constants<kRows>* to) {
  const int first = first_tile * kTileRows;
  const bool gated = a.epilogue.activation == Activation::kSwiGlu;
  for (int i = static_cast<int>(threadIdx.x); i < tiles * kTileRows; i += static_cast<int>(blockDim.x)) {
    const int m = first + i;
    if (m >= a.geometry.tiles * kTileRows) break;
    to->weight_scale[i] = a.weights.scale != nullptr ? __ldg(a.weights.scale + m) : 1.0F;
    if (gated) continue;  // has none of the others
    to->bias[i] = a.epilogue.bias != nullptr ? __ldg(a.epilogue.bias + m) : 0.0F;
    to->scale[i] = a.epilogue.scale != nullptr ? __ldg(a.epilogue.scale + m) : 1.0F;
    if (a.epilogue.out.snake_a != nullptr) {
      const int channel =
          a.epilogue.stride > 1 ? m - Divide(m, a.epilogue.by_out_channels) * a.epilogue.out.channels : m;
      to->snake_a[i] = __ldg(a.epilogue.out.snake_a + channel);
      to->snake_inverse_b[i] = __ldg(a.epilogue.out.snake_inverse_b + channel);
    }
  }
}

// A thread's part of the same: all loads are in flight together, and are awaited where they are stored. Only where a
// block has a thread for each output.
struct ConstantLoads {
  float weight_scale, bias, scale, snake_a, snake_inverse_b;

  __device__ __forceinline__ ConstantLoads(const GemmArgs& a, int first_tile, int tiles) {
    const int i = static_cast<int>(threadIdx.x);
    const int m = first_tile * kTileRows + i;
    const bool there = i < tiles * kTileRows && m < a.geometry.tiles * kTileRows;
    const bool plain = there && a.epilogue.activation != Activation::kSwiGlu;
    const bool snake = plain && a.epilogue.out.snake_a != nullptr;
    const int channel =
        snake && a.epilogue.stride > 1 ? m - Divide(m, a.epilogue.by_out_channels) * a.epilogue.out.channels : m;
    weight_scale = there && a.weights.scale != nullptr ? __ldg(a.weights.scale + m) : 1.0F;
    bias = plain && a.epilogue.bias != nullptr ? __ldg(a.epilogue.bias + m) : 0.0F;
    scale = plain && a.epilogue.scale != nullptr ? __ldg(a.epilogue.scale + m) : 1.0F;
    snake_a = snake ? __ldg(a.epilogue.out.snake_a + channel) : 0.0F;
    snake_inverse_b = snake ? __ldg(a.epilogue.out.snake_inverse_b + channel) : 0.0F;
  }

  template <int kRows>
  __device__ __forceinline__ void Store(int tiles, Constants<kRows>* to) const {
    const int i = static_cast<int>(threadIdx.x);
    if (i >= tiles * kTileRows) return;
    to->weight_scale[i] = weight_scale;
    to->bias[i] = bias;
    to->scale[i] = scale;
    to->snake_a[i] = snake_a;
    to->snake_inverse_b[i] = snake_inverse_b;
  }
};

// Loads four neighbouring residuals; zeros where there are none.
__device__ __forceinline__ float4 ResidualAt(const GemmArgs& a, int column, int m) {
  if (a.epilogue.residual == nullptr || column >= a.geometry.columns || m >= a.geometry.tiles * kTileRows)
    return {0, 0, 0, 0};
  const int64_t at = static_cast<int64_t>(column) * a.geometry.tiles * kTileRows + m;
  return __ldcg(reinterpret_cast<const float4*>(a.epilogue.residual + at));
}

// Loads the residual that the calling thread needs first in Finish().
__device__ __forceinline__ float4 FirstResidual(const GemmArgs& a, int first_tile, int first_column) {
  const int e = static_cast<int>(threadIdx.x);
  const int n = Divide(e, a.geometry.by_quads);
  return ResidualAt(a, first_column + n, first_tile * kTileRows + (e - n * a.geometry.by_quads.value) * 4);
}

// The part of an epilogue that is known at compile time. Few warps finish a tile, and nothing hides the latency of a
// branch at run time.
enum class End {
  kGeneral,
  kPlain,  // no normalisation, activation or scale; nor have the following ones
  // All with SnakeBeta and an input of the next operator in F16, and besides
  kOperand,     // nothing
  kResidual,    // a residual, and what becomes of it
  kTransposed,  // the beginning of one; several steps of a column
};
inline End EndOf(const GemmEpilogue& epilogue) {
  const Sink& out = epilogue.out;
  if (!IsPlain(epilogue)) return End::kGeneral;
  if (out.data == nullptr || out.snake_a == nullptr || out.planes == Planes::kF32) return End::kPlain;
  const bool residual = epilogue.residual != nullptr;
  const bool y = epilogue.y != nullptr;
  if (!residual && !y && epilogue.stride == 1) return End::kOperand;
  if (residual && y && epilogue.stride == 1) return End::kResidual;
  if (!residual && y && epilogue.stride > 1) return End::kTransposed;
  return End::kPlain;
}

// Finishes and stores four outputs of each of kQuads weight tiles of kColumns columns at `places`: rows row.. of the
// block's tiles from `tile` on, kTileStep apart, or what these gates and their values make. sums(c, n, row) gives rows
// row..row+3 of the n-th tile of the c-th column; residual(c, n, m) is asked once for each, if there is one. Each
// operation is done for all quads before the next one begins, so that neighbouring instructions do not depend on each
// other. With several columns, absent ones are computed and not stored, since a branch would separate the instructions
// of the others. A single column is never absent.
template <End kEnd, int kQuads, int kTileStep = 1, int kColumns, int kRows, typename Residual, typename Sums>
__device__ __forceinline__ void FinishQuads(const GemmArgs& a, int first_tile, int tile, int row,
                                            const int (&columns)[kColumns], const Column (&places)[kColumns],
                                            const float (&normalise)[kColumns], const Constants<kRows>& constants,
                                            const Residual& residual, const Sums& sums) {
  constexpr bool kPlain = kEnd != End::kGeneral;
  constexpr bool kKnown = kPlain && kEnd != End::kPlain;
  const bool has_residual = kKnown ? kEnd == End::kResidual : a.epilogue.residual != nullptr;
  const bool has_y = kKnown ? kEnd != End::kOperand : a.epilogue.y != nullptr;
  const bool has_steps = kKnown ? kEnd == End::kTransposed : a.epilogue.stride > 1;
  const bool gated = !kPlain && a.epilogue.activation == Activation::kSwiGlu;
  float4 v[kColumns][kQuads];
  int m[kQuads];
#pragma unroll
  for (int n = 0; n < kQuads; ++n) {
    const int i = (tile + n * kTileStep) * kTileRows + row;  // among the constants
    m[n] = first_tile * kTileRows + i;
    if (gated) m[n] = (first_tile + tile + n * kTileStep) * (kTileRows / 2) + row;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      v[c][n] = Times(sums(c, n, row), Load4(constants.weight_scale + i));
      if constexpr (!kPlain) v[c][n] = Times(v[c][n], normalise[c]);
      if (gated) {
        const float4 gate = v[c][n];
        v[c][n] = Times(Times(sums(c, n, row + kTileRows / 2), Load4(constants.weight_scale + i + kTileRows / 2)),
                        normalise[c]);
        v[c][n] = Times(v[c][n], float4{Silu(gate.x), Silu(gate.y), Silu(gate.z), Silu(gate.w)});
        continue;
      }
      if constexpr (kPlain) {
        v[c][n] = Plus(v[c][n], Load4(constants.bias + i));  // the scale is a power of two
      } else {
        v[c][n] = PlusRounded(v[c][n], Load4(constants.bias + i));
        if (a.epilogue.activation == Activation::kGelu) {
          v[c][n] = {Gelu(v[c][n].x), Gelu(v[c][n].y), Gelu(v[c][n].z), Gelu(v[c][n].w)};
        }
        v[c][n] = Times(v[c][n], Load4(constants.scale + i));
      }
    }
  }
  if (has_residual) {
#pragma unroll
    for (int n = 0; n < kQuads; ++n) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) v[c][n] = PlusRounded(v[c][n], residual(c, n, m[n]));
    }
  }
  if (has_y) {
    const int outputs = a.geometry.tiles * (gated ? kTileRows / 2 : kTileRows);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      float* const y = a.epilogue.y + static_cast<int64_t>(columns[c]) * outputs;
#pragma unroll
      for (int n = 0; n < kQuads; ++n) {
        if (kColumns == 1 || places[c].frame >= 0) *reinterpret_cast<float4*>(y + m[n]) = v[c][n];
      }
    }
  }
  if (!kKnown && a.epilogue.out.data == nullptr) return;
  if (kKnown || a.epilogue.out.snake_a != nullptr) {
    const auto snake = [&](auto approximate) {
#pragma unroll
      for (int n = 0; n < kQuads; ++n) {
        const int i = (tile + n * kTileStep) * kTileRows + row;
        const float4 snake_a = Load4(constants.snake_a + i);
        const float4 snake_inverse_b = Load4(constants.snake_inverse_b + i);
#pragma unroll
        for (int c = 0; c < kColumns; ++c)
          v[c][n] = Snake<decltype(approximate)::value>(v[c][n], snake_a, snake_inverse_b);
      }
    };
    if (a.epilogue.out.planes == Planes::kHalf) {
      snake(std::true_type());
    } else {
      snake(std::false_type());
    }
  }
  int steps[kQuads] = {};
  if (has_steps) {
#pragma unroll
    for (int n = 0; n < kQuads; ++n) {
      steps[n] = Divide(m[n], a.epilogue.by_out_channels);
      m[n] -= steps[n] * a.epilogue.out.channels;
    }
  }
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    if (kColumns > 1 && places[c].frame < 0) continue;
    int times[kQuads];
#pragma unroll
    for (int n = 0; n < kQuads; ++n) times[n] = places[c].time * (has_steps ? a.epilogue.stride : 1) + steps[n];
    StoreSinks<kKnown>(a.epilogue.out, places[c].batch_row, times, places[c].state, places[c].frame, m, v[c]);
  }
}

// Finishes the sums of a block's tiles from `first_tile` and stores them. `sums(tile, column, row)` gives rows
// row..row+3 of the block's tile-th weight tile; `first_residual` is FirstResidual() of the same block.
template <End kEnd = End::kGeneral, int kRows, typename Sums>
__device__ __forceinline__ void Finish(const GemmArgs& a, int first_tile, int first_column, int columns,
                                       const Column* places, const float* column_scale,
                                       const Constants<kRows>& constants, float4 first_residual, const Sums& sums) {
  const bool gated = kEnd == End::kGeneral && a.epilogue.activation == Activation::kSwiGlu;
  const int quads = a.geometry.by_quads.value;
  for (int e = static_cast<int>(threadIdx.x); e < quads * columns; e += static_cast<int>(blockDim.x)) {
    const int n = Divide(e, a.geometry.by_quads);
    const int quad = e - n * quads;
    const Column place = places[n];
    const int tile = gated ? quad / 2 : quad / 4;
    if (place.frame < 0 || first_tile + tile >= a.geometry.tiles) continue;
    FinishQuads<kEnd, 1>(
        a, first_tile, tile, gated ? quad % 2 * 4 : quad % 4 * 4, {first_column + n}, {place},
        {kEnd == End::kGeneral && a.epilogue.rms_input != nullptr ? column_scale[n] : 1.0F}, constants,
        [&](int, int, int m) {
          return e == static_cast<int>(threadIdx.x) ? first_residual : ResidualAt(a, first_column + n, m);
        },
        [&](int, int, int row) { return sums(tile, n, row); });
  }
}

}  // namespace qtts::cuda::codec

#endif  // QTTS_CUDA_CODEC_EPILOGUE_CUH_
