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

// Splits text into pre-tokens, the units of BPE (spec 2). Immutable and thread-safe.
class PreTokenizer {
 public:
  static Result<PreTokenizer> Create(TokenizerPattern pattern);

  // Returns the ends of the pre-tokens of `text` (valid UTF-8), as increasing byte offsets; the last one is
  // text.size(). With `open_end`, only the ends that no appended text can move; the rest of the text is then undecided.
  Result<std::vector<size_t>> Split(std::string_view text, bool open_end) const;

 private:
  using Regex = std::unique_ptr<GRegex, decltype(&g_regex_unref)>;
  // Appends the ends of the pre-tokens of text[begin, end). Returns the last of them, or `begin`.
  Result<size_t> SplitWindow(std::string_view text, size_t begin, size_t end, bool open_end,
                             std::vector<size_t>* ends) const;
  explicit PreTokenizer(Regex regex) : regex_(std::move(regex)) {}
  Regex regex_;
};

}  // namespace qtts

#endif  // QTTS_TEXT_PRE_TOKENIZER_H_
