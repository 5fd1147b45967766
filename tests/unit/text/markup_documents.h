// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_UNIT_TEXT_MARKUP_DOCUMENTS_H_
#define QTTS_TESTS_UNIT_TEXT_MARKUP_DOCUMENTS_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "qtts/markup.h"
#include "qtts/utf8.h"

namespace qtts {

// All that a document says, as it was read.
struct ReadDocument {
  std::string text;   // blocks end with "|", breaks are "<ms>", marks "{name}"
  std::string plain;  // the texts of all items
  std::vector<MarkupItem> items;
  std::vector<TextMapPiece> map;  // of `plain`
  std::vector<std::string> warnings;
};

inline void Add(const std::vector<MarkupItem>& items, ReadDocument* document) {
  TextMap map;
  map.Append(document->map);
  for (const MarkupItem& item : items) {
    document->items.push_back(item);
    switch (item.kind) {
      case MarkupItem::Kind::kText:
        document->text += item.text;
        document->plain += item.text;
        map.Append(item.map);
        break;
      case MarkupItem::Kind::kBlockEnd:
        if (!document->text.ends_with('|')) document->text += "|";
        break;
      case MarkupItem::Kind::kBreak:
        document->text += "<" + std::to_string(item.duration.count() / 1000000) + ">";
        break;
      case MarkupItem::Kind::kMark:
        document->text += "{" + item.name + "}";
        break;
    }
  }
  document->map = map.pieces();
}

inline MarkupOptions OptionsOf(Markup markup) {
  MarkupOptions options;
  options.markup = markup;
  options.language = "en";
  return options;
}

// Reads it in pieces that end after `cuts`, in bytes.
inline ReadDocument ReadInPieces(std::string_view text, const MarkupOptions& options, const std::vector<size_t>& cuts) {
  ReadDocument document;
  MarkupReader reader(options);
  size_t begin = 0;
  for (const size_t cut : cuts) {
    EXPECT_TRUE(reader.Append(text.substr(begin, cut - begin)).ok());
    Add(reader.Take(), &document);
    for (std::string& warning : reader.TakeWarnings()) document.warnings.push_back(std::move(warning));
    begin = cut;
  }
  EXPECT_TRUE(reader.Append(text.substr(begin)).ok());
  reader.Finish();
  Add(reader.Take(), &document);
  for (std::string& warning : reader.TakeWarnings()) document.warnings.push_back(std::move(warning));
  return document;
}

inline ReadDocument ReadGrowing(std::string_view text, const MarkupOptions& options) {
  return ReadInPieces(text, options, {});
}

inline std::vector<size_t> RandomCuts(std::mt19937* rng, size_t size) {
  std::vector<size_t> cuts;
  std::uniform_int_distribution<size_t> length(1, 9);
  for (size_t at = length(*rng); at < size; at += length(*rng)) cuts.push_back(at);
  return cuts;
}

inline std::string ReadTestFile(const std::string& name) {
  std::ifstream file(std::string(QTTS_MARKUP_DOCUMENTS) + "/" + name);
  EXPECT_TRUE(file.good()) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

// The document's characters [begin, end).
inline std::string CharactersOf(std::string_view document, size_t begin, size_t end) {
  const std::string_view head = Utf8Head(document, end);
  return std::string(head.substr(Utf8Head(document, begin).size()));
}

// Checks that the document is read the same however it is cut, and that its map leads back to the same characters.
inline void CheckDocument(std::string_view text, const MarkupOptions& options, std::mt19937* rng, int times) {
  const ReadDocument whole = ReadGrowing(text, options);
  for (int i = 0; i < times; ++i) {
    const ReadDocument cut = ReadInPieces(text, options, RandomCuts(rng, text.size()));
    ASSERT_EQ(cut.text, whole.text) << text;
    ASSERT_EQ(cut.map, whole.map) << text;
    ASSERT_EQ(cut.warnings, whole.warnings) << text;
  }
  size_t spoken = 0;
  size_t source = 0;
  const std::string repaired = RepairUtf8(text);
  for (const TextMapPiece& piece : whole.map) {
    ASSERT_EQ(piece.spoken_begin, spoken);
    ASSERT_EQ(piece.source_begin, source);
    ASSERT_GE(piece.spoken_end, spoken);
    ASSERT_GE(piece.source_end, source);
    spoken = piece.spoken_end;
    source = piece.source_end;
    if (!piece.copied) continue;
    ASSERT_EQ(piece.spoken_end - piece.spoken_begin, piece.source_end - piece.source_begin);
    for (size_t k = 0; k < piece.spoken_end - piece.spoken_begin; ++k) {
      const std::string from = CharactersOf(repaired, piece.source_begin + k, piece.source_begin + k + 1);
      const std::string to = CharactersOf(whole.plain, piece.spoken_begin + k, piece.spoken_begin + k + 1);
      const bool same = from == to || IsWhiteSpace(DecodeUtf8(to).code) ||
                        (from.size() == 1 && to.size() == 1 && (from[0] & ~0x20) == to[0]) || to == ".";
      ASSERT_TRUE(same) << "\"" << from << "\" as \"" << to << "\" in " << text;
    }
  }
  ASSERT_EQ(spoken, CountUtf8(whole.plain));
  ASSERT_LE(source, CountUtf8(repaired));
}

}  // namespace qtts

#endif  // QTTS_TESTS_UNIT_TEXT_MARKUP_DOCUMENTS_H_
