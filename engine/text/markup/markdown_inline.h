// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_MARKUP_MARKDOWN_INLINE_H_
#define QTTS_TEXT_MARKUP_MARKDOWN_INLINE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "text/markup/item_builder.h"
#include "text/markup/markdown_words.h"

namespace qtts {

// The text of a growing Markdown block: emphasis, code, links, images, raw HTML, references. A mark is held back until
// it is known what it is; no rule looks further than kAhead characters, so that nothing waits for ever.
class MarkdownInline {
 public:
  static constexpr size_t kAhead = 2000;

  MarkdownInline(const MarkupOptions& options, ItemBuilder* items)
      : options_(options), words_(MarkdownWordsOf(options.language)), items_(items) {}

  // Begins a block. In a heading "#" at the end is silent.
  void Begin(bool heading) { heading_ = heading; }
  void Push(const DocumentChar& character);
  // Ends the block.
  void Finish();

 private:
  static constexpr char32_t kMore = 0xFFFFFFFE;  // not there yet
  static constexpr char32_t kEnd = 0xFFFFFFFF;   // behind the last character, or beyond kAhead

  // The result of FindClose(): the offset of the closing bracket, unless more text is needed to know it.
  struct Brackets {
    bool needs_more = false;
    size_t close = 0;  // 0: none
  };

  void Run();
  size_t Next();
  size_t NextOf(char32_t c);
  char32_t At(size_t offset) const;
  size_t RunLength(char32_t c) const;
  Brackets FindClose(size_t open, char32_t opening, char32_t closing, size_t longest) const;
  std::u32string Between(size_t begin, size_t end) const;
  size_t Copy(size_t count = 1);
  size_t ReadEscape();
  size_t ReadBackquotes();
  size_t ReadEmphasis(char32_t c);
  size_t ReadLink(size_t open);
  size_t SayLink(bool image, size_t open, size_t close, size_t end);
  size_t ReadAngle();
  size_t ReadReference();
  size_t ReadClosingHashes();

  const MarkupOptions& options_;
  const MarkdownWords& words_;
  ItemBuilder* items_;
  std::vector<DocumentChar> text_;  // from `at_` on not decided
  size_t at_ = 0;
  bool ended_ = false;
  bool heading_ = false;
  char32_t before_ = kEnd;  // the last character that was decided
  size_t code_ = 0;         // backquotes that opened code
  size_t stars_ = 0;        // stars that are open
  size_t underscores_ = 0;
};

}  // namespace qtts

#endif  // QTTS_TEXT_MARKUP_MARKDOWN_INLINE_H_
