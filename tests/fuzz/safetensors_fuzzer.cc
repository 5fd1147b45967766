// SPDX-License-Identifier: LGPL-2.1-or-later
// The header of a safetensors file: a header that parses must describe only bytes inside the file.
#include <cstdlib>
#include <string>

#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  const auto header = qtts::SafetensorsHeader::Parse(file, size, "fuzz.safetensors");
  if (!header.ok()) {
    if (header.status().message().empty() || header.status().message().size() > 2000) std::abort();
    return 0;
  }
  uint64_t covered = 0;
  for (const auto& [name, entry] : header->entries) {
    if (entry.begin > entry.end || entry.end > size - header->data_offset) std::abort();
    covered += entry.end - entry.begin;
  }
  if (covered != size - header->data_offset) std::abort();
  return 0;
}
