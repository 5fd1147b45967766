// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_API_TOKENIZER_CACHE_H_
#define QTTS_API_TOKENIZER_CACHE_H_

#include <memory>
#include <string>

#include "qtts/status.h"
#include "qtts/tokenizer_pattern.h"
#include "text/tokenizer.h"

namespace qtts {

// The tokenizer of a model folder; the same one as long as anybody holds it and its files are what they were. So it is
// read once for Engine::Inspect() and the Engine::Load() that follows, and for all engines of one model. Of the
// released vocabulary reading takes a few tenths of a second, most of it checks that SentencePiece would be exact.
// Thread-safe; two threads that ask for one at the same time may both read it. Errors: as Tokenizer::Load();
// kResourceExhausted.
Result<std::shared_ptr<const Tokenizer>> SharedTokenizer(const std::string& folder, TokenizerPattern pattern);

}  // namespace qtts

#endif  // QTTS_API_TOKENIZER_CACHE_H_
