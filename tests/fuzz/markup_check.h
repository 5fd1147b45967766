// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_FUZZ_MARKUP_CHECK_H_
#define QTTS_TESTS_FUZZ_MARKUP_CHECK_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz/check.h"
#include "qtts/markup.h"
#include "qtts/utf8.h"

namespace qtts {

// The result of reading a document, in a form that does not depend on how its items are cut.
struct FuzzedDocument {
  std::string text;
  std::string plain;
  TextMap map;
  std::vector<std::string> warnings;

  void Add(MarkupReader* reader) {
    for (const MarkupItem& item : reader->Take()) {
      QTTS_FUZZ_CHECK(RepairUtf8(item.text) == item.text);
      if (item.kind != MarkupItem::Kind::kText) {
        text +=
            "\x01" + std::to_string(static_cast<int>(item.kind)) + item.name + std::to_string(item.duration.count());
        continue;
      }
      plain += item.text;
      text += item.text;
      map.Append(item.map);
    }
    for (std::string& warning : reader->TakeWarnings()) warnings.push_back(std::move(warning));
  }
};

inline FuzzedDocument ReadFuzzed(std::string_view document, const MarkupOptions& options, size_t step) {
  FuzzedDocument read;
  MarkupReader reader(options);
  for (size_t at = 0; at < document.size(); at += step) {
    QTTS_FUZZ_CHECK(reader.Append(document.substr(at, step)).ok());
    read.Add(&reader);
  }
  reader.Finish();
  read.Add(&reader);
  return read;
}

// The utterances of a document in one line each.
inline std::string SplitFuzzed(std::string_view document, const MarkupOptions& options, MarkupUnits units,
                               size_t step) {
  Segmenter::Options sentences;
  sentences.language = "en";
  sentences.max_chars = 200;
  MarkupSplitter splitter(options, units, sentences);
  std::string all;
  std::string marks;  // apart: an utterance that grows may be given out ahead of its marks
  const auto take = [&] {
    while (const auto part = splitter.Next()) {
      if (part->begins) all += "\n" + std::to_string(part->begin) + " " + part->name;
      all += part->text;
      for (const MarkupMark& mark : part->marks) marks += "\n" + mark.name + std::to_string(mark.text);
    }
  };
  for (size_t at = 0; at < document.size(); at += step) {
    QTTS_FUZZ_CHECK(splitter.Append(document.substr(at, step)).ok());
    take();
  }
  splitter.Finish();
  take();
  QTTS_FUZZ_CHECK(splitter.idle());
  return all + marks;
}

inline void CheckMarkup(Markup markup, const uint8_t* data, size_t size) {
  constexpr size_t kLongest = 4096;
  if (size < 2 || size > kLongest) return;
  MarkupOptions options;
  options.markup = markup;
  options.language = (data[0] & 1U) != 0 ? "de" : "en";
  options.rules.code = static_cast<MarkupRule>((data[0] >> 1U) % 3);
  options.rules.table = static_cast<MarkupRule>((data[0] >> 2U) % 3);
  options.rules.image = static_cast<MarkupRule>((data[0] >> 3U) % 3);
  options.rules.link = static_cast<MarkupRule>((data[0] >> 4U) % 3);
  if ((data[0] & 64U) != 0) options.rules.html = MarkupRule::kRead;
  const size_t step = data[1] % 32 + size_t{1};
  const std::string document(data + 2, data + size);

  const FuzzedDocument whole = ReadFuzzed(document, options, kLongest);
  const FuzzedDocument pieces = ReadFuzzed(document, options, step);
  // Block ends alone may be told in several steps.
  QTTS_FUZZ_CHECK(pieces.text == whole.text && pieces.warnings == whole.warnings);
  QTTS_FUZZ_CHECK(pieces.map.pieces() == whole.map.pieces());
  size_t spoken = 0;
  size_t source = 0;
  for (const TextMapPiece& piece : whole.map.pieces()) {
    QTTS_FUZZ_CHECK(piece.spoken_begin == spoken && piece.source_begin == source);
    QTTS_FUZZ_CHECK(piece.spoken_end >= spoken && piece.source_end >= source);
    spoken = piece.spoken_end;
    source = piece.source_end;
  }
  const size_t length = CountUtf8(RepairUtf8(document));
  QTTS_FUZZ_CHECK(spoken == CountUtf8(whole.plain) && source <= length);

  const auto units = static_cast<MarkupUnits>((data[1] / 32) % 3);
  QTTS_FUZZ_CHECK(SplitFuzzed(document, options, units, step) == SplitFuzzed(document, options, units, kLongest));
  if (markup != Markup::kMarkdown) return;
  std::vector<std::string> warnings;
  for (const MarkupItem& item : ReadMarkup(document, options, &warnings)) {
    QTTS_FUZZ_CHECK(RepairUtf8(item.text) == item.text && item.position <= length);
  }
}

}  // namespace qtts

#endif  // QTTS_TESTS_FUZZ_MARKUP_CHECK_H_
