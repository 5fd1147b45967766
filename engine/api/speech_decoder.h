// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_API_SPEECH_DECODER_H_
#define QTTS_API_SPEECH_DECODER_H_

#include <memory>

#include "backend/speech_decoder.h"
#include "checkpoint/checkpoint.h"
#include "qtts/engine_options.h"
#include "qtts/status.h"

namespace qtts {

// Creates the decoder of `checkpoint` on the device that an engine with these options would use. Its samples equal the
// engine's: on the CPU bit for bit, on a GPU for the codec's precision there. Errors: as Engine::Load().
Result<std::unique_ptr<SpeechDecoder>> CreateSpeechDecoder(const EngineOptions& options,
                                                           std::shared_ptr<const Checkpoint> checkpoint);

}  // namespace qtts

#endif  // QTTS_API_SPEECH_DECODER_H_
