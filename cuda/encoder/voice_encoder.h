// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_ENCODER_VOICE_ENCODER_H_
#define QTTS_CUDA_ENCODER_VOICE_ENCODER_H_

#include <memory>

#include "backend/voice_encoder.h"
#include "checkpoint/checkpoint.h"

namespace qtts::cuda {

// Makes the encoders of a Base checkpoint on GPU `device` (backend/voice_encoder.h), in F32 whatever the model speaks
// in.
//
// Allocates nothing yet. A net is loaded when it is first used (of a released model
// about 40 MB for the x-vector, 190 MB for codes; scratch memory for ten seconds 130 MB, for a minute 160 MB),
// and stays, so that every further voice takes milliseconds. It works on a stream of its own, beside
// the streams of utterances.
//
// Errors: as Checkpoint::OpenVoiceEncoder(); kResourceExhausted where the device has too little memory, which leaves
// it as it was; kInvalidArgument for recordings too short or too long for the nets; kDeviceUnavailable once the
// device is lost.
//
// The kernels' code is there before, by LoadVoiceEncoderCode() on the current device: it must not wait for a time when
// memory is full (runtime/code_load.h).
std::unique_ptr<VoiceEncoder> CreateVoiceEncoder(std::shared_ptr<const Checkpoint> checkpoint, int device);
Status LoadVoiceEncoderCode();

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_ENCODER_VOICE_ENCODER_H_
