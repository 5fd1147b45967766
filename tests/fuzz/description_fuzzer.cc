// SPDX-License-Identifier: LGPL-2.1-or-later
//
// Any bytes as a checkpoint's qttssrc.json.

#include <cstdint>
#include <string_view>

#include "checkpoint/description.h"
#include "fuzz/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const qtts::TalkerConfig talker = [] {
    qtts::TalkerConfig config;
    config.speakers = {{"clara", 1}, {"grace", 2}};
    config.transformer.num_layers = 7;
    config.transformer.num_heads = 4;
    return config;
  }();
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  const auto description = qtts::ParseDescription("fuzz", json, talker);
  if (!description.ok()) {
    QTTS_FUZZ_CHECK(!description.status().message().empty() && description.status().message().size() < 2000);
    return 0;
  }
  QTTS_FUZZ_CHECK(description->default_speaker.empty() || talker.speakers.count(description->default_speaker) == 1);
  QTTS_FUZZ_CHECK(description->text.part_characters >= 0 && description->text.part_characters <= 100000);
  if (const auto& head = description->alignment) {
    QTTS_FUZZ_CHECK(head->layer >= 0 && head->layer < 7 && head->head >= 0 && head->head < 4);
    QTTS_FUZZ_CHECK(head->offset_ms >= -1000 && head->offset_ms <= 1000);
  }
  return 0;
}
