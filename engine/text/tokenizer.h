// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_TOKENIZER_H_
#define QTTS_TEXT_TOKENIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "qtts/status.h"
#include "qtts/tokenizer_pattern.h"

namespace qtts {

struct VocabularyFiles;

// The byte-level BPE tokenizer of a model folder, built from vocab.json, merges.txt and the added tokens of
// tokenizer_config.json. Gives the ids of the official Qwen2 tokenizer (spec 2) and runs on SentencePiece. Text is
// UTF-8; each maximal subpart of invalid bytes counts as U+FFFD. NUL is an ordinary character. Immutable and
// thread-safe.
class Tokenizer {
 public:
  // Maximum input of one call, in bytes. Split longer text.
  static constexpr size_t kMaxTextBytes = size_t{64} * 1024;

  // Reads the three files. Errors name the file and the line or key: kNotFound, kUnreadable, kCorruptModel;
  // kUnsupported for a vocabulary that SentencePiece would not encode exactly.
  static Result<std::shared_ptr<const Tokenizer>> Load(const std::string& folder,
                                                       TokenizerPattern pattern = TokenizerPattern::kNative);

  // Creates it from files already read.
  static Result<std::shared_ptr<const Tokenizer>> Create(const VocabularyFiles& files,
                                                         TokenizerPattern pattern = TokenizerPattern::kNative);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Returns the ids of `text` as the official tokenizer gives them: added tokens such as "<|im_start|>" become their
  // ids, the longest match first. For prompts that the engine writes itself. kResourceExhausted beyond kMaxTextBytes.
  Result<std::vector<int32_t>> Encode(std::string_view text) const;

  // Returns the ids of a user's text. Literals of added tokens are encoded as ordinary characters, so that no text can
  // forge a control token. kResourceExhausted beyond kMaxTextBytes.
  Result<std::vector<int32_t>> EncodePlain(std::string_view text) const;
  // Returns the same, and the end of each token in `text`, in bytes. Where normalization changes the text, the end lies
  // within the normalization cluster that the token ends in.
  Result<std::vector<int32_t>> EncodePlain(std::string_view text, std::vector<size_t>* ends) const;

  // Returns the size in bytes of a prefix of `text` whose ids no later text can change: the ids of the whole text are
  // EncodePlain() of the prefix followed by EncodePlain() of the rest. It ends before the last pre-token that later
  // text could change and before an incomplete UTF-8 sequence, and has at most kMaxTextBytes. Lets text be fed while it
  // is still being written (spec 3.6).
  size_t StablePrefix(std::string_view text) const;

  // Returns the bytes of `id`; an added token's own spelling; empty for an unknown id.
  std::string Decode(int32_t id) const;

  // Returns the id of an added token by its exact spelling, or -1.
  int32_t AddedToken(std::string_view content) const;

  // Returns the largest id plus one.
  int32_t vocab_size() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace qtts

#endif  // QTTS_TEXT_TOKENIZER_H_
