// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_MARKUP_ITEM_BUILDER_H_
#define QTTS_TEXT_MARKUP_ITEM_BUILDER_H_

#include <chrono>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qtts/markup.h"
#include "text/prepare/mapped_text.h"

namespace qtts {

// A character of a document and its position.
struct DocumentChar {
  char32_t code = 0;
  size_t position = 0;
};

// Collects the items of a document, and what its user is told.
class ItemBuilder {
 public:
  // Stands for the character before the first one of a block.
  static constexpr char32_t kNone = 0xFFFFFFFF;

  // Copies a character of the document, spoken as `code`.
  void Copy(char32_t code, size_t position) { Add({code, position, position + 1, true}); }
  void Copy(const DocumentChar& character) { Copy(character.code, character.position); }
  // Adds `spoken`, which stands for the characters [begin, end) of the document.
  void Replace(std::string_view spoken, size_t begin, size_t end);
  // Adds white space: one space, or a line end, before the text that follows, unless nothing stands before it.
  void Space(size_t position, char32_t code = U' ');
  // Adds the same for white space that the document does not have, before `position`.
  void Gap(size_t position, char32_t code = U' ');
  // Adds a comma for the characters [begin, end), without white space before it.
  void Pause(size_t begin, size_t end);

  void SetSettings(const MarkupSettings& settings);
  const MarkupSettings& settings() const { return settings_; }
  void EndBlock(SentenceGap gap, size_t position);
  void Break(std::chrono::nanoseconds duration, size_t position);
  void Mark(std::string name, size_t position);

  // Returns the last character of this block that was spoken, or kNone.
  char32_t last() const { return last_; }

  // Tells the user something, the same thing once.
  void Warn(const std::string& warning);

  std::vector<MarkupItem> Take();
  std::vector<std::string> TakeWarnings() { return std::exchange(warnings_, {}); }

 private:
  static constexpr size_t kMaxWarnings = 32;

  void Add(const MappedChar& character);
  void AddSpace(const MappedChar& space);
  void FlushText();

  MapBuilder text_;
  bool has_text_ = false;  // since the last item
  size_t position_ = 0;    // end of the text
  MarkupSettings settings_;
  char32_t last_ = kNone;
  std::optional<MappedChar> space_;               // before the text that follows
  SentenceGap last_gap_ = SentenceGap::kHeading;  // of the block end since which there is no text
  std::vector<MarkupItem> items_;
  std::vector<std::string> warnings_;
  std::set<std::string> told_;
};

// Reads the characters of a document one by one, and makes items of them.
class DocumentReader {
 public:
  virtual ~DocumentReader() = default;
  virtual void Push(const DocumentChar& character) = 0;
  // Ends the document, which has `length` characters.
  virtual void Finish(size_t length) = 0;
};

// Text without markup.
class PlainReader : public DocumentReader {
 public:
  explicit PlainReader(ItemBuilder* items) : items_(items) {}
  void Push(const DocumentChar& character) override { items_->Copy(character); }
  void Finish(size_t /*length*/) override {}

 private:
  ItemBuilder* items_;
};

}  // namespace qtts

#endif  // QTTS_TEXT_MARKUP_ITEM_BUILDER_H_
