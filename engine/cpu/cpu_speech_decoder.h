// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_CPU_SPEECH_DECODER_H_
#define QTTS_CPU_CPU_SPEECH_DECODER_H_

#include <memory>

#include "backend/speech_decoder.h"
#include "checkpoint/checkpoint.h"
#include "cpu/arithmetic.h"
#include "qtts/status.h"

namespace qtts {

// Creates the decoder on the CPU. Its samples are those of a CPU backend with the same arithmetic, and do not depend on
// the number of threads. Computes in the calling thread and threads - 1 helpers. `threads` 0: one per core that the
// process may use. Keeps `checkpoint` alive. Errors: kResourceExhausted.
Result<std::unique_ptr<SpeechDecoder>> CreateCpuSpeechDecoder(std::shared_ptr<const Checkpoint> checkpoint, int threads,
                                                              cpu::Arithmetic arithmetic);

}  // namespace qtts

#endif  // QTTS_CPU_CPU_SPEECH_DECODER_H_
