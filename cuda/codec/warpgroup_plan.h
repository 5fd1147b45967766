// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CODEC_WARPGROUP_PLAN_H_
#define QTTS_CUDA_CODEC_WARPGROUP_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "codec/kernels.h"
#include "codec/staging.h"

// How the kernels of warpgroups (warpgroup_parts.cuh) share out shared memory, which has two rings: slots, each with a
// block of channels of a tile's columns, and stages of weights.
namespace qtts::cuda::codec {

inline constexpr int kMaxSlots = 10;
inline constexpr int kMaxGroupSlots = 6;  // where all taps of a group read the same slots
inline constexpr int kMaxStages = 6;

constexpr int TileColumns(int row_tiles) { return 128 * row_tiles; }
constexpr int StageBytes(int outputs) { return outputs * 128; }
// Returns the chunks of a stage of weights: rows of 128 bytes are one chunk of two planes, or two of one.
constexpr int StageChunks(int planes) { return 2 / planes; }

// How a kernel of warpgroups goes through the columns of a product.
struct WarpgroupPlan {
  int32_t column_tiles = 0;
  int32_t halo = 0;    // columns of a stream's past
  int32_t staged = 0;  // columns of a slot, halos included
  int32_t slots = 0;   // of a channel block of staged columns
  int32_t stages = 0;  // of weights, in shared memory; 0: the device has not the memory
  int32_t taps = 1;    // taps that columns are copied for, one after the other
};

// Returns the plan of a kernel with tiles of 128 `row_tiles` columns and stages of `outputs` weight rows, whose other
// things in shared memory take `extras` bytes.
WarpgroupPlan PlanWarpgroups(const GemmArgs& gemm, int outputs, int row_tiles, size_t extras,
                             const DeviceTraits& device);
// Returns the bytes of shared memory of a block.
size_t SharedBytes(const WarpgroupPlan& plan, int outputs, int planes, size_t extras);

}  // namespace qtts::cuda::codec

#endif  // QTTS_CUDA_CODEC_WARPGROUP_PLAN_H_
