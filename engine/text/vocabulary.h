// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_VOCABULARY_H_
#define QTTS_TEXT_VOCABULARY_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "qtts/status.h"

namespace qtts {

// A token that bypasses BPE and is matched literally.
struct AddedTokenEntry {
  int32_t id = 0;
  std::string content;
};

// A byte-level BPE vocabulary (spec 2), checked. Ids are dense and every byte has a piece. The merges are such that
// pieces and ranks alone give the same result as the list of merges: join any two neighbours whose concatenation is a
// mergeable piece, lowest rank first. SentencePiece needs this, since it has pieces and ranks but no list of pairs.
// Lists that come from training have this property.
struct Vocabulary {
  static constexpr int32_t kByte = -1;         // the piece is a single byte
  static constexpr int32_t kUnreachable = -2;  // no merge makes the piece

  std::vector<std::string> pieces;     // by id, in the byte alphabet
  std::vector<int32_t> ranks;          // by id: position of the merge that makes it; kByte; kUnreachable
  std::vector<AddedTokenEntry> added;  // by id
};

// Contents of the files of a vocabulary. The names are for error messages.
struct VocabularyFiles {
  std::string vocab_name = "vocab.json";
  std::string merges_name = "merges.txt";
  std::string config_name = "tokenizer_config.json";
  std::string vocab;
  std::string merges;
  std::string config;
};

// Parses the files, untrusted input. Errors name the file and the line or key: kCorruptModel if the files contradict
// the format or each other; kUnsupported if the vocabulary is well-formed, but SentencePiece would not be exact or it
// needs features that the Qwen2 tokenizer lacks.
Result<Vocabulary> ParseVocabulary(const VocabularyFiles& files);

}  // namespace qtts

#endif  // QTTS_TEXT_VOCABULARY_H_
