// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_MARKUP_MARKDOWN_STREAM_H_
#define QTTS_TEXT_MARKUP_MARKDOWN_STREAM_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/markup/item_builder.h"
#include "text/markup/markdown_inline.h"
#include "text/markup/markdown_words.h"

namespace qtts {

// A growing Markdown document. The beginning of a line is held back until its kind is known; text is given out as it
// comes. It differs from md4c, which sees all of a document, where a mark has no partner, a link is defined elsewhere,
// a table begins without "|", and code is indented within a list.
class MarkdownStream : public DocumentReader {
 public:
  // Longest line, in characters, that is held back as a whole: a row of a table, a definition.
  static constexpr size_t kLongestLine = 4000;

  MarkdownStream(const MarkupOptions& options, ItemBuilder* items);

  void Push(const DocumentChar& character) override;
  void Finish(size_t length) override;

 private:
  static constexpr char32_t kMore = 0xFFFFFFFE;
  static constexpr char32_t kEnd = 0xFFFFFFFF;

  // Destination of the text of a line.
  enum class Mode {
    kStart,   // not known yet
    kText,    // a paragraph, a heading, an item
    kCode,    // a block of code
    kSilent,  // nowhere
    kMarked,  // nowhere, up to `marker_`
  };

  char32_t At(size_t index) const;
  bool RestIs(size_t begin, std::u32string_view allowed) const;
  void Decide();
  bool DecideFence(size_t begin);
  void DecideBlock(size_t begin);
  void DecideHeading(size_t begin);
  void DecideFenceBegin(size_t begin);
  void DecideRuleOrItem(size_t begin);
  void DecideNumber(size_t begin);
  void DecideAngle(size_t begin);
  void DecideDefinition(size_t begin);
  bool IsRule(size_t begin) const;
  bool IsTableRule(size_t begin) const;
  bool RowGoesOn(size_t begin) const;
  bool WaitsForLine() const { return !complete_ && line_.size() < kLongestLine; }

  void BeginItem(size_t text);
  void BeginText(size_t begin, bool heading = false);
  void EndText(SentenceGap gap);
  void EndTable();
  void BlankLine();
  void EndLine(size_t position);
  void DropLine();
  void CodeLine();
  void SayCode(const DocumentChar& character);
  void SayBlock(MarkupRule rule, std::string_view name);
  void ReadRow(size_t begin);
  void PushMarked(char32_t c);

  const MarkupOptions options_;
  const MarkdownWords& words_;
  ItemBuilder* items_;
  MarkdownInline inline_;
  Mode mode_ = Mode::kStart;
  std::vector<DocumentChar> line_;  // not decided
  bool complete_ = false;           // it ends there
  size_t position_ = 0;             // behind the last character
  bool text_ = false;               // a paragraph, heading or item is open
  bool heading_ = false;            // it is a heading
  DocumentChar line_end_;           // of its last line
  bool list_ = false;
  bool item_line_ = false;  // the line begins an item
  bool table_ = false;
  bool indented_code_ = false;
  char32_t fence_ = 0;  // of the block of code that is open
  size_t fence_length_ = 0;
  bool html_ = false;  // a block up to a blank line
  std::u32string_view marker_;
  std::u32string tail_;  // the last characters before it
};

}  // namespace qtts

#endif  // QTTS_TEXT_MARKUP_MARKDOWN_STREAM_H_
