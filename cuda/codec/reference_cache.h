// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CODEC_REFERENCE_CACHE_H_
#define QTTS_CUDA_CODEC_REFERENCE_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "qtts/lru_cache.h"
#include "runtime/device_memory.h"

namespace qtts::cuda {

// Caches the codec's past (Codec::Save()) after the references of in-context voices on the device, for later utterances
// of the same voice.
//
// Bounded. A new entry reuses the memory of the least recently used one, so nothing is freed while streams run, which
// would make the device wait. Not thread-safe.
class ReferenceCache {
 public:
  // For a released model a past takes 6 MB.
  static constexpr size_t kMaxValues = 32;
  static constexpr size_t kMaxBytes = size_t{64} << 20;

  // `bytes`: size of each past. At least one is kept, whatever its size.
  explicit ReferenceCache(size_t bytes) : bytes_(bytes) {}

  // Returns the past after `codes`, or null. Valid until the next Add().
  const void* Find(std::span<const int32_t> codes);
  // Returns memory for the past after `codes`, which must not be cached. The caller must enqueue the copy into it
  // before any other call. Null if the device has no memory; nothing is cached then.
  void* Add(std::span<const int32_t> codes);

  size_t bytes() const { return pasts_.size() * bytes_; }

 private:
  size_t bytes_;
  LruCache<DeviceMemory> pasts_{kMaxValues};
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_CODEC_REFERENCE_CACHE_H_
