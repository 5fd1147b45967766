// SPDX-License-Identifier: LGPL-2.1-or-later
#include "runtime/device_numbers.h"

#include <algorithm>
#include <string_view>

namespace qtts::cuda {
namespace {

// Returns the table for an unknown card. The persistent kernel's weights are not prefetched: that requires an L2 cache
// and a memory like the H200's, and without it the kernel is only a few percent slower.
DeviceNumbers SafeNumbers(int processors) {
  constexpr int kBlocksOfCluster = 8;
  DeviceNumbers numbers = kH200Numbers;
  numbers.measured = false;
  numbers.products.processors = processors;
  numbers.products.blocks_at_once = 2 * int64_t{processors};
  numbers.products.clusters_at_once = std::max(1, processors / kBlocksOfCluster);
  numbers.attention.blocks_at_once = processors;
  numbers.sampling.rows_of_many_threads = processors;
  numbers.codec.table = CodecTable::kNone;
  // Measured as an A100, where half of 132 SMs is 7 % better for 32 streams. Where the codec's part of a frame is
  // longer, as with half as fast matrix instructions, half would be too few.
  constexpr int kMostInPart = 160;
  numbers.codec.shares = {{{8, {8, false}},
                           {kMostInPart * processors / kH200Numbers.products.processors, {6, false}},
                           {CodecNumbers::kAnyStreams, {8, true}}}};
  numbers.codec.some_streams = CodecNumbers::kAnyStreams;
  numbers.codec.processors_of_some = processors * 8 / 9;
  numbers.persistent = {.narrow_talker = {2, 0}, .wide_talker = {2, 0}, .predictor = {2, 0}};
  return numbers;
}

}  // namespace

CodecShare CodecNumbers::ShareOf(int streams) const {
  return std::find_if(shares.begin(), shares.end() - 1, [&](const StreamsShare& s) { return streams <= s.streams; })
      ->share;
}

DeviceNumbers NumbersOf(const char* card, int processors) {
  const std::string_view name = card;
  for (const std::string_view measured : {"H100", "H200"}) {
    if (name.find(measured) == std::string_view::npos) continue;
    DeviceNumbers numbers = kH200Numbers;
    numbers.products.processors = processors;
    return numbers;
  }
  return SafeNumbers(processors);
}

}  // namespace qtts::cuda
