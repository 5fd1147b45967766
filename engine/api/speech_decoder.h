// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_API_SPEECH_DECODER_H_
#define QTTS_API_SPEECH_DECODER_H_

#include <memory>

#include "backend/speech_decoder.h"
#include "checkpoint/checkpoint.h"
#include "qtts/engine_options.h"
#include "qtts/status.h"

namespace qtts {

// The decoder of `checkpoint` where an engine with these options would run. Its sound is that of an engine: on the CPU
// to the bit, on a GPU in the precision that the engine's codec has there. Errors: as Engine::Load().
Result<std::unique_ptr<SpeechDecoder>> CreateSpeechDecoder(const EngineOptions& options,
                                                           std::shared_ptr<const Checkpoint> checkpoint);

}  // namespace qtts

#endif  // QTTS_API_SPEECH_DECODER_H_
