// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_MARKUP_MARKDOWN_WORDS_H_
#define QTTS_TEXT_MARKUP_MARKDOWN_WORDS_H_

#include <string_view>

namespace qtts {

// Words for MarkupRule::kName in a language.
struct MarkdownWords {
  std::string_view tag;
  std::string_view code, table, image, link;
};

// Returns the words of a language. `language`: a name or tag; English for one without words.
const MarkdownWords& MarkdownWordsOf(std::string_view language);

}  // namespace qtts

#endif  // QTTS_TEXT_MARKUP_MARKDOWN_WORDS_H_
