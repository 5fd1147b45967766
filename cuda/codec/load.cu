// SPDX-License-Identifier: LGPL-2.1-or-later
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "codec/kernels.h"
#include "runtime/elementwise.cuh"
#include "runtime/fragment.h"
#include "runtime/launch.h"
#include "runtime/matrix_operand.h"

// Kernels that bring weights into shape, run once.
namespace qtts::cuda::codec {
namespace {

__global__ void GatherKernel(GatherArgs a) {
  const int64_t width = static_cast<int64_t>(a.taps) * a.source_channels;
  const int64_t e = ElementIndex();
  if (e >= a.rows * width) return;
  const auto r = static_cast<int>(e / width);
  const auto k = static_cast<int>(e - r * width);
  const int tap = k / a.source_channels;
  const int c = k - tap * a.source_channels;
  const int64_t from = a.offset + r / a.group_rows * a.group_stride + r % a.group_rows * a.row_stride +
                       tap * a.tap_stride + c * a.channel_stride;
  const int64_t row = a.first + r / a.run * a.run_stride + r % a.run;
  const float scale = a.column_scale != nullptr ? a.column_scale[c] : 1.0F;
  a.dense[(row * a.taps + tap) * a.channels + c] = a.source[from] * scale;
}

__global__ void ProductKernel(ProductArgs a) {
  const int64_t e = ElementIndex();
  if (e >= static_cast<int64_t>(a.rows) * a.columns) return;
  const auto i = static_cast<int>(e / a.columns);
  const auto j = static_cast<int>(e - static_cast<int64_t>(i) * a.columns);
  float* const to = a.c + i * a.c_row + j;
  double sum = a.accumulate ? *to : 0.0;
  for (int k = 0; k < a.inner; ++k) {
    sum += static_cast<double>(a.a[i * a.a_row + k * a.a_column]) * a.b[k * a.b_row + j * a.b_column];
  }
  *to = static_cast<float>(sum);
}

__global__ void DivideKernel(float* codewords, const float* usage, int rows, int width) {
  const int64_t e = ElementIndex();
  if (e >= static_cast<int64_t>(rows) * width) return;
  codewords[e] /= fmaxf(usage[e / width], 1e-5F);
}

__global__ void WidenKernel(const uint16_t* from, bool bfloat, int64_t count, float* to) {
  const int64_t e = ElementIndex();
  if (e >= count) return;
  to[e] = bfloat ? __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(from)[e])
                 : __half2float(reinterpret_cast<const __half*>(from)[e]);
}

// Computes the power of two that brings a row's largest weight into [8, 16), so that F16 neither overflows nor loses
// the small ones. A block per row.
__global__ void RowScale(const float* dense, int64_t width, float* scale) {
  __shared__ float largest[kElementThreads];
  const float* const row = dense + blockIdx.x * width;
  float m = 0;
  for (int64_t k = threadIdx.x; k < width; k += kElementThreads) m = fmaxf(m, fabsf(row[k]));
  largest[threadIdx.x] = m;
  __syncthreads();
  for (unsigned half = kElementThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) largest[threadIdx.x] = fmaxf(largest[threadIdx.x], largest[threadIdx.x + half]);
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  m = largest[0];
  scale[blockIdx.x] = m > 0 && isfinite(m) ? ldexpf(1.0F, max(ilogbf(m) - 3, -100)) : 1.0F;
}

// Packs F16 planes, a thread for each element; see GemmWeights. A lane has two rows (LeftFragment) and, of the unit
// that a lane of the other operand reads (UnitFragment), the four channels of the k-step `step`.
__global__ void PackKernel(const float* dense, int tiles, int taps, int blocks, int groups, int planes, __half* packed,
                           const float* scale) {
  const int64_t e = ElementIndex();
  const int64_t chunks = static_cast<int64_t>(taps) * blocks;
  const int64_t width = chunks * kChannelBlock;
  if (e >= static_cast<int64_t>(tiles) * kTileRows * width) return;
  const auto i = static_cast<int>(e % 8);
  const auto lane = static_cast<int>(e / 8 % 32);
  const auto step = static_cast<int>(e / 256 % 2);
  const auto chunk = static_cast<int>(e / 512 % chunks);
  const int64_t tile = e / 512 / chunks;
  const int group_blocks = blocks / groups;
  const int group = chunk / (taps * group_blocks);
  const int in_group = chunk - group * taps * group_blocks;
  const int tap = in_group / group_blocks;
  const int block = group * group_blocks + in_group - tap * group_blocks;
  const int64_t row = tile * kTileRows + LeftFragment::Row(lane, i / 2);
  const int64_t k = (static_cast<int64_t>(tap) * blocks + block) * kChannelBlock + UnitFragment::Column(lane) +
                    step * 4 + i / 4 * 2 + i % 2;
  const float w = dense[row * width + k] / scale[row];
  const __half h = __float2half_rn(w);
  __half* const to = packed + (e / 512 * planes) * 512 + e % 512;
  *to = h;
  if (planes == 2) to[512] = __float2half_rn(w - __half2float(h));
}

// Packs weights for warpgroups, a thread for each element.
__global__ void PackWarpgroupKernel(const float* dense, int tiles, int taps, int blocks, int groups, int planes,
                                    WarpgroupOrder order, const float* scale, __half* packed) {
  const int64_t e = ElementIndex();
  const int chunks = taps * blocks;
  const int stages = (chunks * planes + 1) / 2;
  const int64_t stage_elements = static_cast<int64_t>(order.block_outputs) * kOperandRowElements;
  if (e >= static_cast<int64_t>(tiles) * kTileRows / order.block_outputs * stages * stage_elements) return;
  const auto in_stage = static_cast<int>(e % stage_elements);
  const auto stage = static_cast<int>(e / stage_elements % stages);
  const int64_t block_of_outputs = e / stage_elements / stages;
  const int n = in_stage / kOperandRowElements;
  const int stored = in_stage % kOperandRowElements;
  const int place = (stored / 8 ^ n % kOperandGroupRows) * 8 + stored % 8;
  const int half = place / kChannelBlock;  // the plane, or which of two chunks
  const int chunk = planes == 2 ? stage : stage * 2 + half;
  if (chunk >= chunks) {
    packed[e] = __float2half_rn(0);
    return;
  }
  const int group_blocks = blocks / groups;
  const int group = chunk / (taps * group_blocks);
  const int in_group = chunk - group * taps * group_blocks;
  const int tap = in_group / group_blocks;
  const int block = group * group_blocks + in_group - tap * group_blocks;
  const int output = order.rows == RowOrder::kEights
                         ? n / kChannelBlock * kChannelBlock + ColumnInChunk(n % kChannelBlock)
                         : n / 16 * 16 + n % 8 / 2 * 4 + n / 8 % 2 * 2 + n % 2;
  const int64_t row = block_of_outputs * order.block_outputs + output;
  const int64_t k = (static_cast<int64_t>(tap) * blocks + block) * kChannelBlock + ColumnInChunk(place % kChannelBlock);
  const float w = dense[row * chunks * kChannelBlock + k] / scale[row];
  const __half h = __float2half_rn(w);
  packed[e] = planes == 2 && half == 1 ? __float2half_rn(w - __half2float(h)) : h;
}

__global__ void TransposeKernel(const float* dense, int rows, int64_t width, float* transposed) {
  const int64_t e = ElementIndex();
  if (e >= rows * width) return;
  transposed[e] = dense[e % rows * width + e / rows];
}

}  // namespace

cudaError_t Gather(const GatherArgs& args, cudaStream_t stream) {
  const int64_t elements = static_cast<int64_t>(args.rows) * args.taps * args.source_channels;
  return LaunchElements(GatherKernel, elements, stream, args);
}

cudaError_t Product(const ProductArgs& args, cudaStream_t stream) {
  return LaunchElements(ProductKernel, static_cast<int64_t>(args.rows) * args.columns, stream, args);
}

cudaError_t DivideByUsage(float* codewords, const float* usage, int rows, int width, cudaStream_t stream) {
  return LaunchElements(DivideKernel, static_cast<int64_t>(rows) * width, stream, codewords, usage, rows, width);
}

cudaError_t Widen(const uint16_t* from, bool bfloat, int64_t count, float* to, cudaStream_t stream) {
  return LaunchElements(WidenKernel, count, stream, from, bfloat, count, to);
}

cudaError_t PackHalf(const float* dense, int tiles, int taps, int blocks, int groups, int planes, void* packed,
                     float* row_scale, cudaStream_t stream) {
  const int64_t width = static_cast<int64_t>(taps) * blocks * kChannelBlock;
  const int rows = tiles * kTileRows;
  const cudaError_t error = LaunchKernel(RowScale, dim3(static_cast<unsigned>(rows)), kElementThreads, 0, stream, {},
                                         dense, width, row_scale);
  if (error != cudaSuccess) return error;
  return LaunchElements(PackKernel, rows * width, stream, dense, tiles, taps, blocks, groups, planes,
                        static_cast<__half*>(packed), row_scale);
}

cudaError_t PackWarpgroup(const float* dense, int tiles, int taps, int blocks, int groups, int planes,
                          const WarpgroupOrder& order, const float* row_scale, void* packed, cudaStream_t stream) {
  const auto elements = static_cast<int64_t>(WarpgroupBytes(tiles, taps * blocks, planes) / sizeof(__half));
  return LaunchElements(PackWarpgroupKernel, elements, stream, dense, tiles, taps, blocks, groups, planes, order,
                        row_scale, static_cast<__half*>(packed));
}

cudaError_t PackF32(const float* dense, int tiles, int chunks, float* transposed, cudaStream_t stream) {
  const int64_t width = static_cast<int64_t>(chunks) * kChannelBlock;
  const int rows = tiles * kTileRows;
  return LaunchElements(TransposeKernel, rows * width, stream, dense, rows, width, transposed);
}

}  // namespace qtts::cuda::codec
