// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CODEC_STAGED_PLAN_H_
#define QTTS_CUDA_CODEC_STAGED_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "codec/kernels.h"
#include "codec/staging.h"

// How the kernel of whole tiles (gemm_staged.cu) shares out shared memory: stages with the weights of a chunk, slots
// with a channel block of the tile's columns.
namespace qtts::cuda::codec {

// Thread blocks. Those of 4 and 8 weight tiles are for any epilogue, the others for the decoder blocks' products.
inline constexpr GemmTile kStagedTiles[] = {
    {GemmForm::kStaged, 128, 3}, {GemmForm::kStaged, 128, 4}, {GemmForm::kStaged, 96, 6}, {GemmForm::kStaged, 128, 6},
    {GemmForm::kStaged, 192, 3}, {GemmForm::kStaged, 192, 6}, {GemmForm::kStaged, 128, 8}};
inline constexpr int kMaxStagedStages = 4;

// Returns the blocks that an SM has at a time. One block's epilogue runs beside the other one's products. A larger
// block has the SM to itself: it copies operands for more of them.
constexpr int StagedBlocksOfSm(int columns, int tiles) { return columns * tiles <= 96 * 6 ? 2 : 1; }
// Returns the bytes of a stage.
constexpr int StagedStageBytes(int tiles, int planes) { return tiles * planes * kTileRows * kChannelBlock * 2; }

// Shared memory of a thread block from which a device's SMs hold two blocks of a residual unit (unit_staged.cu).
inline constexpr size_t kStagedUnitSharedBytes = size_t{163} << 10;

// Sizes of a kernel.
struct StagedSizes {
  int threads = 0;
  size_t extras = 0;    // bytes of shared memory behind the rings, the columns' addresses not counted
  size_t exchange = 0;  // bytes that the epilogue needs in place of the rings
};

struct StagedPlan {
  // The product as it is multiplied: as of one tap, if columns are copied anew for each.
  int32_t groups = 1;
  int32_t taps = 1;
  int32_t group_blocks = 1;
  int32_t lag_bytes = 0;  // between the rows of neighbouring taps
  int32_t streams = 0;    // 1: columns are copied anew for each tap
  int32_t halo = 0;       // columns of a stream's past
  int32_t staged = 0;     // columns of a slot, halos included
  int32_t slots = 0;
  int32_t slot_bytes = 0;
  int32_t stages = 0;      // 0: the device has not the memory
  int32_t ring_bytes = 0;  // stages and slots, or what the epilogue needs
  int32_t rows = 0;        // addresses of columns
};

// Returns the plan of such blocks. Columns are shared by the taps where there is memory for it.
StagedPlan PlanStaged(const GemmArgs& gemm, const GemmTile& tile, const StagedSizes& sizes, const DeviceTraits& device);
// Returns the bytes of shared memory of a block.
size_t StagedBytes(const StagedPlan& plan, const StagedSizes& sizes);

}  // namespace qtts::cuda::codec

#endif  // QTTS_CUDA_CODEC_STAGED_PLAN_H_
