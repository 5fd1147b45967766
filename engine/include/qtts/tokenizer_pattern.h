// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TOKENIZER_PATTERN_H_
#define QTTS_TOKENIZER_PATTERN_H_

namespace qtts {

// The regex that splits text into pre-tokens before BPE (spec 2). The two differ for mixed-case words, scripts with
// combining marks, and punctuation runs that end in '/'.
enum class TokenizerPattern {
  kNative,   // Qwen's own: official when loaded online, and almost certainly used in training
  kPatched,  // transformers 4.57.3 uses it for local folders (with more than 100,000 pieces)
};

}  // namespace qtts

#endif  // QTTS_TOKENIZER_PATTERN_H_
