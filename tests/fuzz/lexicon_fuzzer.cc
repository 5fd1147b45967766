// SPDX-License-Identifier: LGPL-2.1-or-later
//
// Any bytes as a lexicon file, PLS or columns; what parses is searched in a text.
// Input: the file, a zero byte, the text.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "fuzz/check.h"
#include "qtts/utf8.h"
#include "text/prepare/lexicon.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kLongest = 4096;
  if (size > kLongest) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view file = input.substr(0, input.find('\0'));
  const std::string text(input.substr(std::min(file.size() + 1, input.size())));
  const auto entries = qtts::ParseLexicon(file, "fuzz");
  if (!entries.ok()) {
    QTTS_FUZZ_CHECK(!entries.status().message().empty() && entries.status().message().size() < 3000);
    return 0;
  }
  for (const qtts::LexiconEntry& entry : *entries) {
    QTTS_FUZZ_CHECK(!entry.written.empty() && qtts::CountUtf8(entry.written) <= qtts::kMaxWrittenCharacters);
    QTTS_FUZZ_CHECK(qtts::CountUtf8(entry.spoken) <= qtts::kMaxSpokenCharacters);
  }
  qtts::TextPreparerOptions options;
  options.language = "en";
  options.lexicon = std::make_shared<const qtts::LexiconTree>(*entries);
  const qtts::PreparedText prepared = qtts::PrepareText(text, options);
  QTTS_FUZZ_CHECK(qtts::RepairUtf8(prepared.spoken) == prepared.spoken);
  // Every entry is found where it stands alone.
  if (!entries->empty()) {
    const qtts::LexiconEntry& entry = entries->front();
    if (entry.language.empty()) QTTS_FUZZ_CHECK(qtts::PrepareText(entry.written, options).spoken == entry.spoken);
  }
  return 0;
}
