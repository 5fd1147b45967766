// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CODEC_REFERENCE_CACHE_H_
#define QTTS_CUDA_CODEC_REFERENCE_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "runtime/device_memory.h"

namespace qtts::cuda {

// The codec's past (Codec::Save()) after the references of in-context voices, kept on the device from a voice's
// first utterance for its others.
//
// Bounded; the memory of what was not used for longest goes to who comes next, so that nothing is freed, and the
// device never waits, while somebody speaks. Not thread-safe.
class ReferenceCache {
 public:
  // Of a released model, a past takes 6 MB.
  static constexpr size_t kMostValues = 32;
  static constexpr size_t kMostBytes = size_t{64} << 20;

  // `bytes` of each past; one is kept however large it is.
  explicit ReferenceCache(size_t bytes) : bytes_(bytes) {}

  // The past after `codes`, or null. Valid until the next Add().
  const void* Find(std::span<const int32_t> codes);
  // Memory for the past after `codes`, which is not there: the caller enqueues what fills it before it calls
  // anything else. Null where the device has no room, and then nothing is kept.
  void* Add(std::span<const int32_t> codes);

  size_t bytes() const { return entries_.size() * bytes_; }

 private:
  struct Entry {
    std::vector<int32_t> codes;
    DeviceMemory past;
  };

  size_t bytes_;
  std::list<Entry> entries_;  // the last used first
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_CODEC_REFERENCE_CACHE_H_
