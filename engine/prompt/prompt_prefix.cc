// SPDX-License-Identifier: LGPL-2.1-or-later
#include "prompt/prompt_prefix.h"

#include <algorithm>
#include <array>

namespace qtts {
namespace {

template <typename Values>
void Append(const Values& values, std::string* key) {
  const auto bytes = std::as_bytes(std::span(values));
  key->append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace

size_t PrefixRows(const Prompt& prompt) { return std::min(prompt.constant_rows, prompt.rows.size() - 1); }

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

}  // namespace qtts
