// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>

#include "gemm/gemm.h"
#include "gemm/int8.h"
#include "runtime/device_math.cuh"

// Weights into the order in which lanes load them.
namespace qtts::cuda {
namespace {

__device__ float Element(DType type, const void* source, int64_t at) {
  if (type == DType::kF32) return static_cast<const float*>(source)[at];
  const uint16_t bits = static_cast<const uint16_t*>(source)[at];
  if (type == DType::kBF16) return __uint_as_float(static_cast<uint32_t>(bits) << 16);
  // F16, by value; subnormals are exact in F32.
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  float value;
  if (exponent == 31) {
    value = __uint_as_float(0x7F800000U | static_cast<uint32_t>(mantissa) << 13);
  } else if (exponent == 0) {
    value = static_cast<float>(mantissa) * (1.0F / 16777216.0F);
  } else {
    value = __uint_as_float(static_cast<uint32_t>(exponent + 112) << 23 | static_cast<uint32_t>(mantissa) << 13);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

__global__ void PackKernel(Precision precision, int chunks, int tile_outputs, PackPart part, DType type,
                           const void* source, int64_t first, int64_t rows, int columns, void* target) {
  const int groups = (columns + 7) / 8;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= rows * groups) return;
  const int64_t row = i / groups;
  const int k = static_cast<int>(i % groups) * 8;
  const int64_t output = first + row;
  const int64_t tile = part == PackPart::kWhole ? output / tile_outputs : output / 8;
  const int m = part == PackPart::kWhole ? static_cast<int>(output % tile_outputs)
                                         : static_cast<int>(output % 8) + (part == PackPart::kUp ? 8 : 0);
  const int valid = min(8, columns - k);
  if (precision == Precision::kF32) {
    float* const out = static_cast<float*>(target) + (tile * tile_outputs + m) * chunks * kChunk + k;
    for (int e = 0; e < valid; ++e) out[e] = Element(type, source, row * columns + k + e);
    return;
  }
  const int halves = tile_outputs / 8;
  const int lane = m % 8 * 4 + k % kChunk / 8;
  const int64_t block = (tile * chunks + k / kChunk) * halves + m / 8;
  __nv_bfloat16* const out = static_cast<__nv_bfloat16*>(target) + (block * 32 + lane) * 8;
  for (int e = 0; e < valid; ++e) out[e] = FromFloat<__nv_bfloat16>(Element(type, source, row * columns + k + e));
}

// A thread for each group: a chunk of columns of a row.
__global__ void PackInt8Kernel(gemm::Int8Layout layout, PackPart part, DType type, const void* source, int64_t first,
                               int64_t rows, int columns, char* target) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= rows * layout.chunks) return;
  const int64_t row = i / layout.chunks;
  const int column = static_cast<int>(i % layout.chunks) * kChunk;
  const int64_t output = first + row;
  const int64_t weight_row =
      part == PackPart::kWhole ? output : output / 8 * 16 + output % 8 + (part == PackPart::kUp ? 8 : 0);
  const int valid = min(kChunk, columns - column);
  float weights[kChunk];
  unsigned largest = 0;  // bits of the magnitude: NaN is larger than infinity
#pragma unroll
  for (int e = 0; e < kChunk; ++e) {
    weights[e] = e < valid ? Element(type, source, row * columns + column + e) : 0;
    largest = max(largest, __float_as_uint(weights[e]) & 0x7FFFFFFFU);
  }
  const uint16_t scale = gemm::Int8Scale(__uint_as_float(largest));
  *reinterpret_cast<uint16_t*>(target + layout.ScaleAt(weight_row, column)) = scale;
#pragma unroll
  for (int e = 0; e < kChunk; e += 8) {
    int codes[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) codes[k] = gemm::Int8Code(weights[e + k], scale);
    const gemm::Int8Unit unit = gemm::PackInt8(codes);
    *reinterpret_cast<uint2*>(target + layout.UnitAt(weight_row, column + e)) = {unit.words[0], unit.words[1]};
  }
}

template <typename T>
__global__ void ConvertKernel(DType type, const void* source, int64_t rows, int64_t columns, T* target,
                              int64_t stride) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < rows * columns;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    target[i / columns * stride + i % columns] = FromFloat<T>(Element(type, source, i));
  }
}

constexpr int kPackThreads = 256;

unsigned BlocksFor(int64_t threads) { return static_cast<unsigned>((threads + kPackThreads - 1) / kPackThreads); }

}  // namespace

void Pack(const Launcher& launch, Precision precision, const Matrix& matrix, PackPart part, DType type,
          const void* source, int64_t first, int64_t rows) {
  if (matrix.form == WeightForm::kInt8) {
    launch(PackInt8Kernel, dim3(BlocksFor(rows * matrix.chunks())), kPackThreads, 0, matrix.int8_layout(), part, type,
           source, first, rows, matrix.columns, static_cast<char*>(matrix.data));
    return;
  }
  const int64_t threads = rows * ((matrix.columns + 7) / 8);
  launch(PackKernel, dim3(BlocksFor(threads)), kPackThreads, 0, precision, matrix.chunks(), TileOutputs(matrix.kind),
         part, type, source, first, rows, matrix.columns, matrix.data);
}

void ConvertRows(const Launcher& launch, Precision precision, DType type, const void* source, int64_t rows,
                 int64_t columns, void* target, int64_t stride) {
  const dim3 grid(std::min(BlocksFor(rows * columns), 65535U));
  if (precision == Precision::kF32) {
    launch(ConvertKernel<float>, grid, kPackThreads, 0, type, source, rows, columns, static_cast<float*>(target),
           stride);
  } else {
    launch(ConvertKernel<__nv_bfloat16>, grid, kPackThreads, 0, type, source, rows, columns,
           static_cast<__nv_bfloat16*>(target), stride);
  }
}

}  // namespace qtts::cuda
