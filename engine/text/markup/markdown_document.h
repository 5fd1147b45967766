// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_MARKUP_MARKDOWN_DOCUMENT_H_
#define QTTS_TEXT_MARKUP_MARKDOWN_DOCUMENT_H_

#include <string_view>

#include "text/markup/item_builder.h"

namespace qtts {

// Longest document, in bytes, that ReadMarkdown() takes.
inline constexpr size_t kLongestMarkdown = size_t{16} << 20U;

// Reads a whole Markdown document with md4c. `document`: well-formed UTF-8. False if there is no memory, or it is too
// long; then nothing was read.
bool ReadMarkdown(std::string_view document, const MarkupOptions& options, ItemBuilder* items);

}  // namespace qtts

#endif  // QTTS_TEXT_MARKUP_MARKDOWN_DOCUMENT_H_
