// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_CPU_VOICE_ENCODER_H_
#define QTTS_CPU_CPU_VOICE_ENCODER_H_

#include <memory>

#include "backend/voice_encoder.h"
#include "checkpoint/checkpoint.h"
#include "qtts/status.h"

namespace qtts {

// Creates the voice encoders in F32 on the CPU. They compute in the calling thread and threads - 1 helpers. Each
// network is set up on its first use. The results do not depend on the number of threads.
//
// `threads` 0: one per core that the process may use. Keeps `checkpoint` alive. Errors: as
// Checkpoint::OpenVoiceEncoder(); kResourceExhausted.
Result<std::unique_ptr<VoiceEncoder>> CreateCpuVoiceEncoder(std::shared_ptr<const Checkpoint> checkpoint, int threads);

}  // namespace qtts

#endif  // QTTS_CPU_CPU_VOICE_ENCODER_H_
