// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CODEC_STAGING_H_
#define QTTS_CUDA_CODEC_STAGING_H_

#include <cstdint>

#include "codec/kernels.h"

// Sizes of the columns that a kernel stages in shared memory. A convolution's taps read the same staged rows, moved by
// their lag, so that each channel block of a tile's columns is copied once for all taps.
namespace qtts::cuda::codec {

inline constexpr int kRowBytes = kChannelBlock * 2;  // of a column's channel block in shared memory, a plane

// Returns true if columns are copied anew for each tap: the segments of the sum are no groups of channels, so that a
// segment needs other channels of one tap than of another. Each chunk then has a slot of its own.
constexpr bool StreamsColumns(const GemmGeometry& geometry) { return geometry.groups != geometry.segments; }
// Returns such a product as a kernel multiplies it: one tap, its chunks as channel blocks, its segments as groups.
// Segments must be equally long.
GemmGeometry AsOneTap(GemmGeometry geometry);

// Columns of a tile that lie in a slot.
struct Staging {
  int32_t halo = 0;    // of a stream's past: the longest lag
  int32_t staged = 0;  // halos included, one for each stream of the tile
};
// Returns the staged columns of tiles of `columns`, for a product with `rows` columns of a stream.
Staging StagingOf(const GemmGeometry& geometry, int rows, int columns);

// Returns the slots that a ring needs if the columns of a chunk are copied `ahead` chunks before they are multiplied.
// A slot has one channel block, and is free once the last tap has read it.
int SlotsAhead(int taps, int group_blocks, int ahead);

}  // namespace qtts::cuda::codec

#endif  // QTTS_CUDA_CODEC_STAGING_H_
