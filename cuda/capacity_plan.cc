// SPDX-License-Identifier: LGPL-2.1-or-later
#include "capacity_plan.h"

#include <algorithm>
#include <cstdint>

#include "attention/attention.h"
#include "paths/graph/graph_path.h"
#include "sequences/sequences.h"

namespace qtts::cuda {
namespace {

// Streams whose sound an engine makes at once. Each takes 12 MB of scratch memory, 9 MB without warpgroups, and 512 at
// once are no faster: on an H200 a stream takes 36.4 instead of 36.9 us of the codec alone, but a frame of 1,024
// streams 60.6 instead of 58.9 ms.
constexpr int kMaxCodecRows = 256;
// Rows times splits of one call that there is scratch memory for, at least.
constexpr int kRowSplits = 8192;
// Splits that a frame of any number of rows may have where contexts are cut: 1,024 positions, 80 seconds.
constexpr int kSplitsOfManyRows = 16;

}  // namespace

CapacityPlan Plan(int voices, const ModelConfig& model, const DeviceNumbers& card) {
  const bool many = voices > kMaxRows;
  const bool by_library = card.products.many_rows == ManyRowsProducts::kLibrary;
  const bool by_warpgroups = card.products.many_rows == ManyRowsProducts::kWarpgroup;
  CapacityPlan plan;
  const int rows = many ? GraphPath::RowBucket(std::min(voices, kMostRows)) : kMaxRows;
  // All entries are page-locked, so many rows have few.
  plan.ring = {.entries = many ? kManyRowsRing : kRing, .rows = rows};

  plan.captured_rows = GraphPath::RowBucket(std::min(voices, kMostRows));

  plan.frame.slots = voices;
  plan.frame.rows = rows;
  plan.frame.prompt_rows = many ? Sequences::kMostPromptRows : Sequences::kRowsAtOnce;
  // Up to kMaxRows rows keep the logits of each group; tests read them.
  plan.frame.predictor_logits = std::max((model.talker.num_code_groups - 1) * kMaxRows, rows);
  const bool many_split = many && NeedsSplits(card.attention, rows);
  const int splits_of_longest = SplitsFor(model.talker.transformer, MaxPositionsOf(model));
  plan.frame.row_splits =
      std::max({kRowSplits, many_split ? rows * kSplitsOfManyRows : 0, kMinRows * splits_of_longest});

  plan.weights.swizzled = by_warpgroups;
  if (by_library) {
    // The predictor's first pass has two rows a stream.
    plan.weights.library_rows = std::max<int64_t>(int64_t{2} * rows, plan.frame.prompt_rows);
    // Algorithms that cuBLASLt recommends for 64 and 128 rows took twice the time, with those rows, too.
    constexpr int kFewestLikelyRows = 256;
    plan.weights.likely_rows = std::max(rows, kFewestLikelyRows);
  }

  // Cards with warpgroups have memory enough, and kernels for batches of more than these voices (CodecCopiesFor()).
  plan.codec_rows = std::min(by_warpgroups ? rows : plan.captured_rows, kMaxCodecRows);
  plan.codec_copies = CodecCopiesFor(plan.codec_rows);
  return plan;
}

}  // namespace qtts::cuda
