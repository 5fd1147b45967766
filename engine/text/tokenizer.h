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

// The byte-level BPE tokenizer of a model folder: vocab.json, merges.txt and the added tokens of
// tokenizer_config.json. Same ids as the official Qwen2 tokenizer (spec 2), on SentencePiece.
// Text is UTF-8; each maximal subpart of invalid bytes counts as U+FFFD. NUL is a character like
// any other. Immutable and thread-safe.
class Tokenizer {
 public:
  // Longest input of one call, in bytes. Longer text is an error: split it.
  static constexpr size_t kMaxTextBytes = size_t{64} * 1024;

  // Reads the three files. Errors name the file and the line or key: kNotFound, kUnreadable,
  // kCorruptModel; kUnsupported for a vocabulary on which SentencePiece would not be exact.
  static Result<std::shared_ptr<const Tokenizer>> Load(const std::string& folder,
                                                       TokenizerPattern pattern = TokenizerPattern::kNative);

  // Same from files already read.
  static Result<std::shared_ptr<const Tokenizer>> Create(const VocabularyFiles& files,
                                                         TokenizerPattern pattern = TokenizerPattern::kNative);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Ids of `text` as the official tokenizer gives them: added tokens such as "<|im_start|>" become
  // their ids, the longest first. For prompts the engine writes itself. kResourceExhausted beyond
  // kMaxTextBytes.
  Result<std::vector<int32_t>> Encode(std::string_view text) const;

  // Ids of text that a user wrote: literals of added tokens are spelled out as ordinary characters,
  // so that no text can forge a control token. kResourceExhausted beyond kMaxTextBytes.
  Result<std::vector<int32_t>> EncodePlain(std::string_view text) const;

  // A prefix of `text`, in bytes, that EncodePlain() gives the same ids for whatever follows, such that
  // the ids of the whole are those of the prefix and then those of the rest: everything before the
  // last pre-token that later text could still change, and before a cut UTF-8 sequence. At most
  // kMaxTextBytes. Lets text be fed while it is still being written (spec 3.6).
  size_t StablePrefix(std::string_view text) const;

  // The bytes that `id` stands for; an added token's own spelling; empty for unknown ids.
  std::string Decode(int32_t id) const;

  // Id of an added token by its exact spelling, or -1.
  int32_t AddedToken(std::string_view content) const;

  // One more than the largest id.
  int32_t vocab_size() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace qtts

#endif  // QTTS_TEXT_TOKENIZER_H_
