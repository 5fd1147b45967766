// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TOKENIZER_PATTERN_H_
#define QTTS_TOKENIZER_PATTERN_H_

namespace qtts {

// Which pre-tokenization regex splits text before BPE (spec 2). The two differ for mixed-case
// words, scripts with combining marks and punctuation runs ending in '/'.
enum class TokenizerPattern {
  kNative,   // Qwen's own: official when loaded online, and what training almost surely used
  kPatched,  // what transformers 4.57.3 swaps in for local folders (of more than 100,000 pieces)
};

}  // namespace qtts

#endif  // QTTS_TOKENIZER_PATTERN_H_
