// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_GOLDEN_VOCABULARY_RELEASED_VOCABULARY_H_
#define QTTS_TESTS_GOLDEN_VOCABULARY_RELEASED_VOCABULARY_H_

#include "text/vocabulary.h"

namespace qtts {

// The tokenizer files of the released checkpoints: merges.txt of this folder, the vocab.json that
// follows from it, and a tokenizer_config.json with the 33 added tokens, ids 151643 to 151675.
// Ends the test program when merges.txt cannot be read.
VocabularyFiles ReleasedVocabulary();

// A small vocabulary of the same kind: the 256 bytes, then the results of `merges`, line by line, then the added
// tokens.
VocabularyFiles MakeVocabulary(const std::string& merges, const std::vector<std::string>& added);

}  // namespace qtts

#endif  // QTTS_TESTS_GOLDEN_VOCABULARY_RELEASED_VOCABULARY_H_
