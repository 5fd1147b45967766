// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_PROMPT_CACHE_H_
#define QTTS_CPU_PROMPT_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "cpu/codec_decoder.h"
#include "cpu/kv_cache.h"
#include "prompt/prompt.h"
#include "qtts/lru_cache.h"

namespace qtts::cpu {

// Caches the common start of the utterances of one voice: the talker's keys and values of the prompt's constant rows,
// and the codec's state after the reference. Neither depends on how a sequence is split into calls, so a restored state
// equals a computed one, bit for bit.
//
// Bounded; evicts the least recently used. Owned by its backend. Not thread-safe.
class PromptCache {
 public:
  // A position of a released talker takes 224 KiB. A prefix takes 2 MiB for a preset voice and 9 MiB for an in-context
  // clone of 10 s. The codec's state after a reference takes 5 to 10 MiB.
  static constexpr size_t kMostValues = 32;
  static constexpr size_t kMostBytes = size_t{64} << 20;  // of each kind

  // Fills the empty `cache` with the PrefixRows() of `prompt` (prompt/prompt_prefix.h). Returns false and leaves
  // `cache` empty if they are not cached. May throw std::bad_alloc.
  bool RestorePrefix(const Prompt& prompt, KvCache* cache);
  // Caches the PrefixRows() of `prompt`, which `cache` begins with, unless they are cached already.
  void KeepPrefix(const Prompt& prompt, const KvCache& cache);

  // Restores in the same way the codec's state after `codes`.
  bool RestoreReference(std::span<const int32_t> codes, CodecDecoder::State* state);
  void KeepReference(std::span<const int32_t> codes, const CodecDecoder::State& state);

 private:
  LruCache<KvCache> prefixes_{kMostValues, kMostBytes};
  LruCache<CodecDecoder::State> references_{kMostValues, kMostBytes};
};

}  // namespace qtts::cpu

#endif  // QTTS_CPU_PROMPT_CACHE_H_
