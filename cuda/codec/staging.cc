// SPDX-License-Identifier: LGPL-2.1-or-later
#include "codec/staging.h"

#include <algorithm>

namespace qtts::cuda::codec {

GemmGeometry AsOneTap(GemmGeometry geometry) {
  geometry.taps = 1;
  geometry.groups = geometry.segments;
  geometry.group_blocks = geometry.chunks / geometry.segments;
  return geometry;
}

Staging StagingOf(const GemmGeometry& geometry, int rows, int columns) {
  // Streams that a tile has a part of at most.
  const int parts = rows % columns == 0 ? 1 : columns % rows == 0 ? columns / rows : (columns - 2) / rows + 2;
  Staging staging;
  staging.halo = (geometry.taps - 1) * geometry.dilation;
  staging.staged = columns + parts * staging.halo;
  return staging;
}

int SlotsAhead(int taps, int group_blocks, int ahead) {
  // The channel block that a chunk reads, counted over the groups.
  const auto block_of = [&](int chunk) {
    const int of_group = taps * group_blocks;
    return chunk / of_group * group_blocks + chunk % of_group % group_blocks;
  };
  const auto is_last_tap = [&](int chunk) { return chunk / group_blocks % taps == taps - 1; };
  int slots = 0;
  int first = 0;  // the oldest block that some tap has not read
  // The pattern repeats with each group.
  for (int chunk = 0; chunk < 2 * taps * group_blocks + ahead; ++chunk) {
    int last = 0;  // the newest block whose copy has been started
    for (int i = chunk; i <= chunk + ahead; ++i) last = std::max(last, block_of(i));
    slots = std::max(slots, last - first + 1);
    if (is_last_tap(chunk)) ++first;
  }
  return slots;
}

}  // namespace qtts::cuda::codec
