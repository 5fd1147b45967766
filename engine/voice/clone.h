// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_VOICE_CLONE_H_
#define QTTS_VOICE_CLONE_H_

#include <string>

#include "backend/voice_encoder.h"
#include "qtts/model_info.h"
#include "qtts/status.h"
#include "qtts/voice.h"

namespace qtts {

// Implements Engine::CloneVoice() on `encoder`. `model` is the fingerprint stored in the voice.
Result<ClonedVoice> CloneVoice(VoiceEncoder* encoder, const std::string& model, const Recording& recording,
                               const CloneOptions& options);

// Returns kInvalidArgument if another model made the voice.
Status CheckVoiceModel(const ClonedVoice& voice, const ModelInfo& model);

}  // namespace qtts

#endif  // QTTS_VOICE_CLONE_H_
