// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_VOICE_CLONE_H_
#define QTTS_VOICE_CLONE_H_

#include <string>

#include "backend/voice_encoder.h"
#include "qtts/model_info.h"
#include "qtts/status.h"
#include "qtts/voice.h"

namespace qtts {

// Engine::CloneVoice() with the encoder of its choice; `model` is the fingerprint the voice bears.
Result<ClonedVoice> CloneVoice(VoiceEncoder* encoder, const std::string& model, const Recording& recording,
                               const CloneOptions& options);

// kInvalidArgument for a voice that another model made.
Status CheckVoiceModel(const ClonedVoice& voice, const ModelInfo& model);

}  // namespace qtts

#endif  // QTTS_VOICE_CLONE_H_
