// SPDX-License-Identifier: LGPL-2.1-or-later
#include "codec/gemm_cut.h"

#include <algorithm>

#include "codec/gemm.h"

namespace qtts::cuda::codec {

GemmCut ChooseCut(const GemmArgs& args, bool grouped, const DeviceTraits& device) {
  constexpr int kMinSegmentChunks = 2;
  if (!grouped) return {1, std::clamp(args.geometry.chunks / kMinSegmentChunks, 1, kMaxSegments)};
  if (!device.clusters) {
    const int blocks = args.x.channels / kChannelBlock;
    int groups = std::clamp(args.geometry.chunks / kMinSegmentChunks, 1, std::min(blocks, kMaxSegments));
    while (blocks % groups != 0) --groups;
    return {groups, groups};
  }
  // One group per thread block of a cluster: enough groups for about two blocks per SM in one frame, or for a small
  // part of the input per block.
  constexpr int kMinGroupChunks = 3;
  constexpr int kBlocks = 264;
  constexpr int kStagedRows = 400;  // of a channel block
  const int columns = args.geometry.columns > 8 ? 32 : 8;
  const int rows =
      columns > 8 ? columns + (args.geometry.taps - 1) * args.geometry.dilation : args.geometry.taps * columns;
  const int blocks = CeilDiv(args.geometry.columns, columns) * CeilDiv(args.geometry.tiles, kClusterTiles);
  const int channel_blocks = args.x.channels / kChannelBlock;
  int groups = 1;
  while (groups < kMaxClusterBlocks && channel_blocks % (2 * groups) == 0 &&
         args.geometry.chunks >= 2 * groups * kMinGroupChunks &&
         (2 * groups * blocks <= kBlocks || channel_blocks / groups * rows > kStagedRows)) {
    groups *= 2;
  }
  return {groups, groups};
}

}  // namespace qtts::cuda::codec
