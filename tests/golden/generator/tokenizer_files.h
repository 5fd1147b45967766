// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_GOLDEN_GENERATOR_TOKENIZER_FILES_H_
#define QTTS_TESTS_GOLDEN_GENERATOR_TOKENIZER_FILES_H_

#include <string>
#include <utility>
#include <vector>

#include "qtts/status.h"

namespace qtts::golden {

// A byte-level BPE vocabulary: the 256 characters of the byte alphabet, then one piece per merge in
// rank order, then the added tokens. All text is in the byte alphabet's spelling (UTF-8).
struct Vocabulary {
  std::vector<std::pair<std::string, std::string>> merges;
  std::vector<std::string> added;
  bool version_line = false;  // whether merges.txt begins with "#version: 0.2"

  int AddedId(const std::string& token) const;  // must exist
  int PieceId(const std::string& piece) const;  // of a merge; must exist
  int size() const { return 256 + static_cast<int>(merges.size() + added.size()); }
};

// A few dozen merges ("assistant", " the", …) and ten added tokens. Every piece is the
// concatenation of two others in one way only, so that "merge what gives a piece" and "merge what
// the list says" are the same.
Vocabulary TinyVocabulary();

// The released vocabulary from its merges.txt.
Result<Vocabulary> ReleasedVocabulary(const std::string& merges_file);

// Writes vocab.json, merges.txt and tokenizer_config.json.
Status WriteTokenizerFiles(const std::string& folder, const Vocabulary& vocabulary);

}  // namespace qtts::golden

#endif  // QTTS_TESTS_GOLDEN_GENERATOR_TOKENIZER_FILES_H_
