// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CODEC_TILE_TABLE_H_
#define QTTS_CUDA_CODEC_TILE_TABLE_H_

#include <array>
#include <span>

#include "codec/kernels.h"
#include "runtime/device_numbers.h"

// The kernel of each of the codec's products, by streams, for a class of cards. All kernels give the same bits. Those
// of Hopper follow from lines fitted to measured times of an H200. codec-bench --table measures a card and prints the
// rows of its fastest kernels in the form that they have in tile_table.cc; --table=whole those with which a whole frame
// is fastest.
namespace qtts::cuda::codec {

// The kernel for up to so many streams.
struct StreamsTile {
  int streams = 0;
  GemmTile tile;
};

// One kind of product. Layers that are alike share a row.
struct ProductTiles {
  static constexpr int kMaxRanges = 8;

  int planes = 0;       // of both operands
  bool copied = false;  // its weights are kept once more, in the order of warpgroups
  int rows = 0;         // columns of a stream
  int outputs = 0;      // weight rows
  int inputs = 0;       // of all taps, padded
  int taps = 0;
  int unit_streams = 0;  // from so many streams on it is one kernel with the next product, LaunchUnit(); 0: never
  std::array<StreamsTile, kMaxRanges> tiles = {};  // ascending; the last one that is used is for any more streams

  // Returns the kernel for `streams`.
  const GemmTile& TileFor(int streams) const;
};

// Rows of the last range.
inline constexpr int kAnyStreams = 1 << 30;

// SMs of the cards that the tables were measured on.
inline constexpr int kTableProcessors = 132;
// Returns the number of streams that occupy a table's card as `streams` occupy the device.
int TableStreams(int streams, const DeviceTraits& device);

// Returns the rows of a table.
std::span<const ProductTiles> TilesOf(CodecTable table);
// Returns the rows for a device of the class that has these numbers.
std::span<const ProductTiles> TableFor(const DeviceTraits& device, const CodecNumbers& numbers);
// Returns the row of the product, or null. Where there is none for products whose weights are kept twice, or once, that
// of the others is taken.
const ProductTiles* FindTiles(std::span<const ProductTiles> table, const GemmArgs& args, Planes planes);

}  // namespace qtts::cuda::codec

#endif  // QTTS_CUDA_CODEC_TILE_TABLE_H_
