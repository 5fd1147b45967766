// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_VOCABULARY_H_
#define QTTS_TEXT_VOCABULARY_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "qtts/status.h"

namespace qtts {

// A token outside BPE, matched literally.
struct AddedTokenEntry {
  int32_t id = 0;
  std::string content;
};

// A byte-level BPE vocabulary (spec 2), checked: ids are dense, every byte has a piece, and the
// merges are such that joining any two neighbours whose concatenation is a mergeable piece, lowest
// rank first, gives exactly what the list of merges gives. (A list that comes from training is like
// that. SentencePiece knows pieces and ranks, no list of pairs, so it needs this.)
struct Vocabulary {
  static constexpr int32_t kByte = -1;         // the piece is a single byte
  static constexpr int32_t kUnreachable = -2;  // no merge makes the piece

  std::vector<std::string> pieces;     // by id, in the byte alphabet (byte_alphabet.h)
  std::vector<int32_t> ranks;          // by id: position of the merge that makes it; kByte; kUnreachable
  std::vector<AddedTokenEntry> added;  // by id
};

// The files of a vocabulary, as read. The names are for error messages.
struct VocabularyFiles {
  std::string vocab_name = "vocab.json";
  std::string merges_name = "merges.txt";
  std::string config_name = "tokenizer_config.json";
  std::string vocab;
  std::string merges;
  std::string config;
};

// Untrusted input. Errors name the file and the line or key: kCorruptModel for files that
// contradict the format or one another, kUnsupported for well-formed vocabularies on which
// SentencePiece would not be exact, or which ask for things the Qwen2 tokenizer has not.
Result<Vocabulary> ParseVocabulary(const VocabularyFiles& files);

}  // namespace qtts

#endif  // QTTS_TEXT_VOCABULARY_H_
