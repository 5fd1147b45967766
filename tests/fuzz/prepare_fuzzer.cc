// SPDX-License-Identifier: LGPL-2.1-or-later
//
// Any bytes as a text to prepare, whole and in pieces.
// Input: one byte for the language, one for steps and emoji, one for the size of the pieces, then the text.

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "fuzz/check.h"
#include "qtts/text_preparer.h"
#include "qtts/utf8.h"

namespace {

void Take(qtts::TextPreparer* preparer, std::string* spoken, qtts::TextMap* map) {
  const qtts::PreparedText part = preparer->Take();
  *spoken += part.spoken;
  map->Append(part.map);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kLongest = 2048;
  if (size < 3 || size > kLongest) return 0;
  static constexpr const char* kLanguages[] = {"",   "en", "en-GB", "de", "fr", "es",    "es-MX", "it",
                                               "pt", "ru", "zh",    "ja", "ko", "de-CH", "nl"};
  qtts::TextPreparerOptions options;
  options.language = kLanguages[data[0] % std::size(kLanguages)];
  options.steps = {(data[1] & 1U) == 0, (data[1] & 2U) == 0, (data[1] & 4U) == 0, (data[1] & 8U) == 0};
  options.emoji = (data[1] & 16U) != 0 ? qtts::Emoji::kNames : qtts::Emoji::kSilent;
  const size_t step = data[2] + size_t{1};
  const std::string text(data + 3, data + size);

  const qtts::PreparedText whole = qtts::PrepareText(text, options);
  QTTS_FUZZ_CHECK(qtts::RepairUtf8(whole.spoken) == whole.spoken);
  std::string spoken;
  qtts::TextMap map;
  qtts::TextPreparer preparer(options);
  for (size_t at = 0; at < text.size(); at += step) {
    QTTS_FUZZ_CHECK(preparer.Append(std::string_view(text).substr(at, step)).ok());
    Take(&preparer, &spoken, &map);
  }
  QTTS_FUZZ_CHECK(preparer.Finish().ok());
  Take(&preparer, &spoken, &map);
  QTTS_FUZZ_CHECK(spoken == whole.spoken);
  qtts::TextMap whole_map;
  whole_map.Append(whole.map);
  QTTS_FUZZ_CHECK(map.pieces() == whole_map.pieces());
  size_t spoken_end = 0;
  size_t source_end = 0;
  for (const qtts::TextMapPiece& piece : map.pieces()) {
    QTTS_FUZZ_CHECK(piece.spoken_begin == spoken_end && piece.source_begin == source_end);
    QTTS_FUZZ_CHECK(piece.spoken_end >= spoken_end && piece.source_end >= source_end);
    spoken_end = piece.spoken_end;
    source_end = piece.source_end;
  }
  QTTS_FUZZ_CHECK(spoken_end == qtts::CountUtf8(spoken) && source_end == qtts::CountUtf8(qtts::RepairUtf8(text)));
  return 0;
}
