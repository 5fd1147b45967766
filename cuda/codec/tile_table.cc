// SPDX-License-Identifier: LGPL-2.1-or-later
#include "codec/tile_table.h"

#include <algorithm>

namespace qtts::cuda::codec {
namespace {

constexpr int kAny = kAnyStreams;
constexpr GemmTile N(int columns, int tiles) { return {GemmForm::kNarrow, columns, tiles}; }
constexpr GemmTile C(int columns, int tiles) { return {GemmForm::kCluster, columns, tiles}; }
constexpr GemmTile W(int columns, int tiles) { return {GemmForm::kWide, columns, tiles}; }
constexpr GemmTile G(int columns, int tiles) { return {GemmForm::kWarpgroup, columns, tiles}; }
constexpr GemmTile S(int columns, int tiles) { return {GemmForm::kStaged, columns, tiles}; }

// H200 and H100, of 132 SMs: the released codec. 9 to 64 streams with 99 SMs (CodecNumbers).
// clang-format off
constexpr ProductTiles kHopperTiles[] = {
    // planes, copied, rows, outputs, inputs, taps, streams of a unit, {up to so many streams, kernel}
    {2, true, 1, 512, 1024, 1, 0, {{{16, N(8, 1)}, {32, N(16, 1)}, {kAny, N(32, 1)}}}},
    {2, true, 1, 512, 1536, 3, 0, {{{16, N(8, 1)}, {32, N(16, 1)}, {kAny, N(32, 1)}}}},
    {2, true, 1, 2048, 512, 1, 0, {{{8, N(8, 2)}, {16, N(16, 2)}, {32, N(32, 2)}, {kAny, W(32, 6)}}}},
    {2, true, 1, 3072, 512, 1, 0, {{{8, N(8, 2)}, {16, N(16, 2)}, {32, N(32, 2)}, {kAny, W(32, 6)}}}},
    {2, false, 2, 1024, 4096, 1, 0, {{{8, N(8, 1)}, {kAny, N(32, 1)}}}},
    {2, true, 2, 1024, 4096, 1, 0, {{{8, N(8, 1)}, {32, N(32, 1)}, {kAny, G(128, 4)}}}},
    {2, false, 2, 2048, 1024, 1, 0, {{{4, N(8, 1)}, {8, N(16, 1)}, {16, N(32, 1)}, {kAny, W(32, 6)}}}},
    {2, true, 2, 2048, 1024, 1, 0, {{{4, N(8, 1)}, {8, N(16, 1)}, {16, N(32, 1)}, {32, W(32, 6)}, {kAny, G(128, 4)}}}},
    {2, false, 2, 4096, 1024, 1, 0, {{{4, N(8, 1)}, {8, N(16, 1)}, {kAny, W(32, 6)}}}},
    {2, true, 2, 4096, 1024, 1, 0,
     {{{4, N(8, 1)}, {8, N(16, 1)}, {32, W(32, 6)}, {128, G(128, 4)}, {kAny, G(128, 8)}}}},
    {2, false, 4, 1024, 4096, 1, 0, {{{4, N(8, 1)}, {8, N(16, 1)}, {32, N(32, 1)}, {kAny, W(32, 6)}}}},
    {2, true, 4, 1024, 4096, 1, 0, {{{4, N(8, 1)}, {8, N(16, 1)}, {16, N(32, 1)}, {kAny, G(128, 4)}}}},
    {2, false, 4, 1536, 7168, 7, 0, {{{2, N(8, 1)}, {4, N(16, 1)}, {16, N(32, 1)}, {kAny, W(32, 6)}}}},
    {2, true, 4, 1536, 7168, 7, 0, {{{2, N(8, 1)}, {4, N(16, 1)}, {16, N(32, 1)}, {kAny, G(128, 6)}}}},
    {2, false, 4, 4096, 1024, 1, 0, {{{2, N(8, 1)}, {4, N(16, 1)}, {8, N(32, 1)}, {32, W(32, 6)}, {kAny, W(64, 6)}}}},
    {2, true, 4, 4096, 1024, 1, 0,
     {{{2, N(8, 1)}, {4, N(16, 1)}, {8, N(32, 1)}, {16, W(32, 6)}, {32, G(128, 4)}, {128, G(128, 8)},
       {192, G(128, 4)}, {kAny, G(128, 8)}}}},
    {2, false, 4, 6144, 3072, 2, 0, {{{2, N(8, 1)}, {4, N(16, 1)}, {16, W(32, 6)}, {32, W(64, 6)}, {kAny, W(32, 6)}}}},
    {2, true, 4, 6144, 3072, 2, 0,
     {{{2, N(8, 1)}, {4, N(16, 1)}, {16, W(32, 6)}, {32, G(128, 6)}, {128, G(128, 12)}, {192, G(128, 6)},
       {kAny, G(128, 12)}}}},
    {2, true, 32, 768, 768, 1, 0, {{{8, C(32, 4)}, {16, W(32, 6)}, {32, W(64, 6)}, {kAny, G(128, 12)}}}},
    {2, true, 32, 768, 5376, 7, 0, {{{8, C(32, 4)}, {16, W(32, 6)}, {32, W(64, 6)}, {kAny, G(128, 12)}}}},
    {2, true, 32, 1920, 1536, 2, 0, {{{4, C(32, 4)}, {8, W(32, 6)}, {16, W(64, 6)}, {kAny, G(128, 12)}}}},
    {2, true, 160, 384, 384, 1, 0, {{{4, C(32, 4)}, {8, W(32, 6)}, {16, W(64, 6)}, {kAny, G(128, 12)}}}},
    {2, true, 160, 384, 2688, 7, 0, {{{4, C(32, 4)}, {8, W(32, 6)}, {16, W(64, 6)}, {kAny, G(128, 12)}}}},
    {2, true, 160, 768, 768, 2, 0, {{{2, C(32, 4)}, {4, W(32, 6)}, {8, W(64, 6)}, {kAny, G(128, 12)}}}},
    {2, true, 640, 192, 192, 1, 0, {{{2, C(32, 4)}, {4, W(32, 6)}, {8, W(64, 6)}, {kAny, G(128, 12)}}}},
    {2, true, 640, 192, 1344, 7, 0, {{{2, C(32, 4)}, {4, W(32, 6)}, {8, W(64, 6)}, {kAny, G(128, 12)}}}},
    {2, false, 640, 288, 384, 2, 0, {{{1, C(32, 4)}, {4, W(32, 6)}, {kAny, W(64, 6)}}}},
    {2, true, 640, 288, 384, 2, 0, {{{1, C(32, 4)}, {4, W(32, 6)}, {kAny, G(128, 6)}}}},
    {2, false, 1920, 96, 96, 1, 0,
     {{{1, N(16, 9)}, {2, N(32, 9)}, {4, N(32, 6)}, {8, W(64, 6)}, {16, N(32, 3)}, {kAny, W(64, 6)}}}},
    {2, false, 1920, 96, 672, 7, 16, {{{1, C(32, 4)}, {2, N(32, 9)}, {4, W(32, 6)}, {kAny, W(64, 6)}}}},
    {1, true, 1, 512, 1024, 1, 0, {{{16, N(8, 1)}, {32, N(16, 1)}, {kAny, N(32, 1)}}}},
    {1, true, 1, 512, 1536, 3, 0, {{{16, N(8, 1)}, {32, N(16, 1)}, {kAny, N(32, 1)}}}},
    {1, true, 1, 2048, 512, 1, 0, {{{8, N(8, 2)}, {16, N(16, 2)}, {32, N(32, 2)}, {kAny, W(32, 6)}}}},
    {1, true, 1, 3072, 512, 1, 0, {{{8, N(8, 2)}, {16, N(16, 2)}, {32, N(32, 2)}, {kAny, W(32, 6)}}}},
    {1, false, 2, 1024, 4096, 1, 0, {{{8, N(8, 1)}, {kAny, N(32, 1)}}}},
    {1, true, 2, 1024, 4096, 1, 0, {{{8, N(8, 1)}, {32, N(32, 1)}, {kAny, G(128, 4)}}}},
    {1, false, 2, 2048, 1024, 1, 0, {{{4, N(8, 1)}, {8, N(16, 1)}, {16, N(32, 1)}, {kAny, W(32, 6)}}}},
    {1, true, 2, 2048, 1024, 1, 0, {{{4, N(8, 1)}, {8, N(16, 1)}, {16, N(32, 1)}, {32, W(32, 6)}, {kAny, G(128, 4)}}}},
    {1, false, 2, 4096, 1024, 1, 0, {{{4, N(8, 1)}, {8, N(16, 1)}, {kAny, W(32, 6)}}}},
    {1, true, 2, 4096, 1024, 1, 0,
     {{{4, N(8, 1)}, {8, N(16, 1)}, {32, W(32, 6)}, {128, G(128, 4)}, {kAny, G(128, 8)}}}},
    {1, false, 4, 1024, 4096, 1, 0, {{{4, N(8, 1)}, {8, N(16, 1)}, {32, N(32, 1)}, {kAny, W(32, 6)}}}},
    {1, true, 4, 1024, 4096, 1, 0, {{{4, N(8, 1)}, {8, N(16, 1)}, {16, N(32, 1)}, {kAny, G(128, 4)}}}},
    {1, false, 4, 1536, 7168, 7, 0, {{{2, N(8, 1)}, {4, N(16, 1)}, {32, N(32, 1)}, {kAny, W(32, 6)}}}},
    {1, true, 4, 1536, 7168, 7, 0, {{{2, N(8, 1)}, {4, N(16, 1)}, {16, N(32, 1)}, {kAny, G(128, 6)}}}},
    {1, false, 4, 4096, 1024, 1, 0, {{{2, N(8, 1)}, {4, N(16, 1)}, {8, N(32, 1)}, {32, W(32, 6)}, {kAny, W(64, 6)}}}},
    {1, true, 4, 4096, 1024, 1, 0,
     {{{2, N(8, 1)}, {4, N(16, 1)}, {8, N(32, 1)}, {16, W(32, 6)}, {32, G(128, 4)}, {128, G(128, 8)},
       {192, G(128, 4)}, {kAny, G(128, 8)}}}},
    {1, false, 4, 6144, 3072, 2, 0, {{{2, N(8, 1)}, {4, N(16, 1)}, {8, N(32, 1)}, {16, W(32, 6)}, {kAny, W(64, 6)}}}},
    {1, true, 4, 6144, 3072, 2, 0,
     {{{2, N(8, 1)}, {4, N(16, 1)}, {8, N(32, 1)}, {16, W(32, 6)}, {32, G(128, 6)}, {128, G(128, 12)},
       {192, G(128, 6)}, {kAny, G(128, 12)}}}},
    {1, true, 32, 768, 768, 1, 0, {{{8, C(32, 4)}, {16, W(32, 6)}, {32, W(64, 6)}, {kAny, G(128, 12)}}}},
    {1, true, 32, 768, 5376, 7, 0, {{{16, C(32, 4)}, {kAny, G(128, 12)}}}},
    {1, true, 32, 1920, 1536, 2, 0, {{{4, C(32, 4)}, {8, W(32, 6)}, {16, W(64, 6)}, {kAny, G(128, 12)}}}},
    {1, true, 160, 384, 384, 1, 0, {{{4, C(32, 4)}, {8, W(32, 6)}, {16, W(64, 6)}, {kAny, G(128, 12)}}}},
    {1, true, 160, 384, 2688, 7, 0, {{{8, C(32, 4)}, {kAny, G(128, 12)}}}},
    {1, true, 160, 768, 768, 2, 0, {{{2, C(32, 4)}, {4, W(32, 6)}, {8, W(64, 6)}, {kAny, G(128, 12)}}}},
    {1, true, 640, 192, 192, 1, 0, {{{4, C(32, 4)}, {8, W(64, 6)}, {kAny, G(128, 12)}}}},
    {1, true, 640, 192, 1344, 7, 0, {{{4, C(32, 4)}, {8, W(64, 6)}, {kAny, G(128, 12)}}}},
    {1, true, 640, 288, 384, 2, 0, {{{1, C(32, 4)}, {4, W(32, 6)}, {8, W(64, 6)}, {kAny, G(128, 6)}}}},
    {1, false, 1920, 96, 96, 1, 0, {{{1, N(16, 9)}, {2, N(32, 9)}, {8, N(32, 6)}, {16, N(32, 3)}, {kAny, W(64, 6)}}}},
    {1, false, 1920, 96, 672, 7, 8, {{{1, C(32, 4)}, {2, N(32, 9)}, {4, N(32, 6)}, {kAny, W(64, 6)}}}},
};

// Cards without warpgroups: an H100 that answered as an A100, with code for 8.0, all its 132 SMs at work; above 64
// streams by the whole frames of an H200 that answered so, for 88, 176 and 352 streams of the table. The fast codec goes
// by the rule. A card with 99 KiB of shared memory has no room for some of these whole tiles, and goes by the rule there.
constexpr ProductTiles kWarpsTiles[] = {
    {2, false, 1, 512, 1024, 1, 0, {{{32, N(16, 1)}, {kAny, N(32, 1)}}}},
    {2, false, 1, 512, 1536, 3, 0, {{{32, N(16, 1)}, {kAny, N(32, 1)}}}},
    {2, false, 1, 2048, 512, 1, 0, {{{16, N(16, 1)}, {32, N(32, 2)}, {64, N(32, 1)}, {120, N(16, 1)}, {kAny, W(32, 6)}}}},
    {2, false, 1, 3072, 512, 1, 0, {{{120, N(16, 1)}, {kAny, W(32, 6)}}}},
    {2, false, 2, 1024, 4096, 1, 0, {{{4, N(16, 1)}, {120, N(32, 1)}, {250, W(32, 6)}, {kAny, W(64, 6)}}}},
    {2, false, 2, 2048, 1024, 1, 0, {{{8, N(16, 1)}, {16, N(32, 1)}, {120, W(32, 6)}, {kAny, W(64, 6)}}}},
    {2, false, 2, 4096, 1024, 1, 0, {{{8, N(16, 1)}, {32, W(32, 6)}, {250, W(64, 6)}, {kAny, S(128, 4)}}}},
    {2, false, 4, 1024, 4096, 1, 0, {{{2, N(16, 1)}, {32, N(32, 1)}, {120, W(32, 6)}, {kAny, W(64, 6)}}}},
    {2, false, 4, 1536, 7168, 7, 0, {{{4, N(16, 1)}, {16, N(32, 1)}, {120, W(32, 6)}, {kAny, W(64, 6)}}}},
    {2, false, 4, 4096, 1024, 1, 0, {{{8, N(16, 1)}, {16, W(32, 6)}, {kAny, W(64, 6)}}}},
    {2, false, 4, 6144, 3072, 2, 0, {{{4, N(16, 1)}, {16, W(32, 6)}, {kAny, W(64, 6)}}}},
    {2, false, 32, 768, 768, 1, 0,
     {{{1, N(16, 1)}, {4, N(32, 1)}, {16, W(32, 6)}, {250, W(64, 6)}, {kAny, S(96, 6)}}}},
    {2, false, 32, 768, 5376, 7, 0,
     {{{1, N(16, 1)}, {8, N(32, 1)}, {16, W(32, 6)}, {32, W(64, 6)}, {250, S(128, 3)}, {kAny, S(96, 6)}}}},
    {2, false, 32, 1920, 1536, 2, 0,
     {{{1, N(16, 1)}, {2, N(32, 1)}, {4, W(32, 6)}, {16, W(64, 6)}, {32, S(96, 6)}, {250, W(64, 6)},
       {kAny, S(96, 6)}}}},
    {2, false, 160, 384, 384, 1, 0, {{{2, N(32, 1)}, {8, W(32, 6)}, {16, W(64, 6)}, {kAny, S(96, 6)}}}},
    {2, false, 160, 384, 2688, 7, 0,
     {{{2, N(32, 1)}, {4, W(32, 6)}, {8, W(64, 6)}, {16, S(128, 3)}, {kAny, S(96, 6)}}}},
    {2, false, 160, 768, 768, 2, 0,
     {{{1, N(32, 1)}, {2, W(32, 6)}, {8, W(64, 6)}, {16, S(96, 6)}, {120, W(64, 6)}, {kAny, S(96, 6)}}}},
    {2, false, 640, 192, 192, 1, 0, {{{1, N(16, 1)}, {2, N(32, 1)}, {4, W(32, 6)}, {kAny, S(96, 6)}}}},
    {2, false, 640, 192, 1344, 7, 0,
     {{{1, N(32, 1)}, {2, W(32, 6)}, {4, W(64, 6)}, {8, S(128, 3)}, {kAny, S(96, 6)}}}},
    {2, false, 640, 288, 384, 2, 0, {{{1, N(32, 1)}, {2, W(32, 6)}, {32, W(64, 6)}, {kAny, S(96, 6)}}}},
    {2, false, 1920, 96, 96, 1, 0,
     {{{1, N(8, 2)}, {4, W(32, 6)}, {8, S(128, 3)}, {32, S(128, 6)}, {kAny, S(96, 6)}}}},
    {2, false, 1920, 96, 672, 7, 32,
     {{{1, N(32, 1)}, {2, W(32, 6)}, {4, W(64, 6)}, {16, S(128, 3)}, {kAny, S(96, 6)}}}},
};
// clang-format on

}  // namespace

const GemmTile& ProductTiles::TileFor(int streams) const {
  return std::find_if(tiles.begin(), tiles.end(), [&](const StreamsTile& range) { return streams <= range.streams; })
      ->tile;
}

int TableStreams(int streams, const DeviceTraits& device) {
  // All Hopper cards have the table's SMs; some may be left to other kernels.
  if (device.warpgroups || device.processors == kTableProcessors) return streams;
  return std::max(1, static_cast<int>(int64_t{streams} * kTableProcessors / std::max(1, device.processors)));
}

std::span<const ProductTiles> TilesOf(CodecTable table) {
  if (table == CodecTable::kHopper) return kHopperTiles;
  if (table == CodecTable::kWarps) return kWarpsTiles;
  return {};
}

std::span<const ProductTiles> TableFor(const DeviceTraits& device, const CodecNumbers& numbers) {
  return TilesOf(device.warpgroups ? numbers.table : CodecTable::kWarps);
}

const ProductTiles* FindTiles(std::span<const ProductTiles> table, const GemmArgs& args, Planes planes) {
  const int count = planes == Planes::kTwoHalves ? 2 : 1;
  const bool copied = args.weights.warpgroup != nullptr;
  const ProductTiles* other = nullptr;
  for (const ProductTiles& row : table) {
    if (row.planes != count || row.rows != args.x.rows || row.outputs != args.geometry.tiles * kTileRows ||
        row.inputs != args.geometry.chunks * kChannelBlock || row.taps != args.geometry.taps) {
      continue;
    }
    if (row.copied == copied) return &row;
    other = &row;
  }
  return other;
}

}  // namespace qtts::cuda::codec
