// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_SENTENCEPIECE_MODEL_H_
#define QTTS_TEXT_SENTENCEPIECE_MODEL_H_

#include <string>

#include "text/vocabulary.h"

namespace qtts {

// A serialized SentencePiece ModelProto (sentencepiece_model.proto) that runs `vocabulary` as BPE on
// text spelled in the byte alphabet: ids are the vocabulary's, lower ranks merge first, unreachable
// pieces are never produced, and nothing is normalized. One more piece follows, the unknown token
// that SentencePiece insists on; text in the alphabet never yields it.
std::string SerializeSentencePieceModel(const Vocabulary& vocabulary);

}  // namespace qtts

#endif  // QTTS_TEXT_SENTENCEPIECE_MODEL_H_
