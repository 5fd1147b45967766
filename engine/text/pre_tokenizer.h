// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_PRE_TOKENIZER_H_
#define QTTS_TEXT_PRE_TOKENIZER_H_

#include <glib.h>

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "qtts/status.h"
#include "text/tokenizer.h"

namespace qtts {

// Splits text into pre-tokens, the units BPE works within (spec 2). Immutable and thread-safe.
class PreTokenizer {
 public:
  static Result<PreTokenizer> Create(TokenizerPattern pattern);

  // Where the pre-tokens of `text`, which is valid UTF-8, end: increasing byte offsets, the last
  // one text.size(). With `open_end` only those that no text appended to `text` can move: the rest
  // after the last of them is undecided.
  Result<std::vector<size_t>> Split(std::string_view text, bool open_end) const;

 private:
  using Regex = std::unique_ptr<GRegex, decltype(&g_regex_unref)>;
  // Appends the ends of the pre-tokens of text[begin, end) and returns the last of them, or `begin`.
  Result<size_t> SplitWindow(std::string_view text, size_t begin, size_t end, bool open_end,
                             std::vector<size_t>* ends) const;
  explicit PreTokenizer(Regex regex) : regex_(std::move(regex)) {}
  Regex regex_;
};

}  // namespace qtts

#endif  // QTTS_TEXT_PRE_TOKENIZER_H_
