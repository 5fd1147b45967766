// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_SENTENCEPIECE_MODEL_H_
#define QTTS_TEXT_SENTENCEPIECE_MODEL_H_

#include <string>

#include "text/vocabulary.h"

namespace qtts {

// Returns a serialized SentencePiece ModelProto (sentencepiece_model.proto) that runs `vocabulary` as BPE on text in
// the byte alphabet. The ids are the vocabulary's. Lower ranks merge first, unreachable pieces are never produced, and
// nothing is normalized. SentencePiece requires an unknown token, which is the last piece; text in the alphabet never
// yields it.
std::string SerializeSentencePieceModel(const Vocabulary& vocabulary);

}  // namespace qtts

#endif  // QTTS_TEXT_SENTENCEPIECE_MODEL_H_
