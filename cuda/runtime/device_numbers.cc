// SPDX-License-Identifier: LGPL-2.1-or-later
#include "runtime/device_numbers.h"

#include <algorithm>
#include <limits>
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
  numbers.codec.some_streams = std::numeric_limits<int>::max();
  numbers.codec.processors_of_some = processors * 8 / 9;
  numbers.persistent = {.narrow_talker = {2, 0}, .wide_talker = {2, 0}, .predictor = {2, 0}};
  return numbers;
}

}  // namespace

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
