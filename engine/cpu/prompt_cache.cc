// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/prompt_cache.h"

#include <algorithm>
#include <array>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace qtts::cpu {
namespace {

template <typename Values>
void Append(const Values& values, std::string* key) {
  const auto bytes = std::as_bytes(std::span(values));
  key->append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// Everything that the first `rows` rows of `prompt` depend on.
std::string PrefixKey(const Prompt& prompt, size_t rows) {
  std::string key;
  bool x_vector = false;
  for (const PromptRow& row : std::span(prompt.rows).first(rows)) {
    const std::array<int32_t, 3> head = {row.text_id, row.x_vector ? 1 : 0, static_cast<int32_t>(row.codes.size())};
    Append(head, &key);
    Append(row.codes, &key);
    x_vector = x_vector || row.x_vector;
  }
  if (x_vector) Append(prompt.x_vector, &key);
  return key;
}

std::string ReferenceKey(std::span<const int32_t> codes) {
  std::string key;
  Append(codes, &key);
  return key;
}

}  // namespace

size_t PromptCache::PrefixRows(const Prompt& prompt) { return std::min(prompt.constant_rows, prompt.rows.size() - 1); }

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
