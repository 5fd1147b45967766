// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_API_TOKENIZER_CACHE_H_
#define QTTS_API_TOKENIZER_CACHE_H_

#include <memory>
#include <string>

#include "qtts/status.h"
#include "qtts/tokenizer_pattern.h"
#include "text/tokenizer.h"

namespace qtts {

// Returns the tokenizer of a model folder. The same object is shared while anybody holds it and its files are
// unchanged. Engine::Inspect() and the following Engine::Load(), and all engines of one model, thus read it once.
// Reading the released vocabulary takes a few tenths of a second, mostly to check that SentencePiece is exact.
// Thread-safe; two concurrent first calls may both read it. Errors: as Tokenizer::Load(); kResourceExhausted.
Result<std::shared_ptr<const Tokenizer>> SharedTokenizer(const std::string& folder, TokenizerPattern pattern);

}  // namespace qtts

#endif  // QTTS_API_TOKENIZER_CACHE_H_
