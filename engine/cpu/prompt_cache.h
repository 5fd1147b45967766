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

// What the utterances of one voice begin with, kept from the first for the others: the talker's keys and
// values of the prompt's constant rows, and the codec's state after the reference. As neither depends on
// how a sequence is cut into calls, what is given back is what would be computed, bit for bit.
//
// Bounded; what was not used for longest goes first. Owned by its backend; not thread-safe.
class PromptCache {
 public:
  // Of a released model's talker, a position takes 224 KiB: a prefix is 2 MiB for a preset voice, 9 MiB for one cloned
  // in-context of 10 s. The codec's state after a reference is 5 to 10 MiB.
  static constexpr size_t kMostValues = 32;
  static constexpr size_t kMostBytes = size_t{64} << 20;  // of each kind

  // Rows of `prompt` whose keys and values are worth keeping: the constant ones, of which the last row of
  // all is none, since its hidden state is needed too.
  static size_t PrefixRows(const Prompt& prompt);

  // Makes `cache`, which is empty, that of the PrefixRows() of `prompt`. False, and `cache` as it was, if
  // they are not known. May throw std::bad_alloc.
  bool RestorePrefix(const Prompt& prompt, KvCache* cache);
  // Keeps the PrefixRows() of `prompt`, which `cache` begins with, unless another utterance of the voice has meanwhile.
  void KeepPrefix(const Prompt& prompt, const KvCache& cache);

  // The same for the codec's state after `codes`.
  bool RestoreReference(std::span<const int32_t> codes, CodecDecoder::State* state);
  void KeepReference(std::span<const int32_t> codes, const CodecDecoder::State& state);

 private:
  LruCache<KvCache> prefixes_{kMostValues, kMostBytes};
  LruCache<CodecDecoder::State> references_{kMostValues, kMostBytes};
};

}  // namespace qtts::cpu

#endif  // QTTS_CPU_PROMPT_CACHE_H_
