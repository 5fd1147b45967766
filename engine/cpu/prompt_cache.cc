// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/prompt_cache.h"

#include <new>
#include <string>
#include <utility>

#include "prompt/prompt_prefix.h"

namespace qtts::cpu {
bool PromptCache::RestorePrefix(const Prompt& prompt, KvCache* cache) {
  const KvCache* const prefix = prefixes_.Find(PrefixKey(prompt, PrefixRows(prompt)));
  if (prefix == nullptr) return false;
  *cache = prefix->Copy(prefix->length());
  return true;
}

void PromptCache::KeepPrefix(const Prompt& prompt, const KvCache& cache) {
  const size_t rows = PrefixRows(prompt);
  if (rows == 0 || !cache.complete()) return;
  try {
    std::string key = PrefixKey(prompt, rows);
    if (prefixes_.Find(key) != nullptr) return;
    KvCache prefix = cache.Copy(static_cast<int64_t>(rows));
    const size_t bytes = prefix.bytes();
    prefixes_.Insert(std::move(key), std::move(prefix), bytes);
  } catch (const std::bad_alloc&) {
    // Not cached: the next utterance computes it again.
  }
}

bool PromptCache::RestoreReference(std::span<const int32_t> codes, CodecDecoder::State* state) {
  const CodecDecoder::State* const kept = references_.Find(ReferenceKey(codes));
  if (kept == nullptr) return false;
  *state = kept->Copy();
  return true;
}

void PromptCache::KeepReference(std::span<const int32_t> codes, const CodecDecoder::State& state) {
  try {
    std::string key = ReferenceKey(codes);
    if (references_.Find(key) != nullptr) return;
    references_.Insert(std::move(key), state.Copy(), state.bytes());
  } catch (const std::bad_alloc&) {
    // Not cached: the next utterance decodes it again.
  }
}

}  // namespace qtts::cpu
