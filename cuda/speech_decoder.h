// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_SPEECH_DECODER_H_
#define QTTS_CUDA_SPEECH_DECODER_H_

#include <memory>

#include "backend/speech_decoder.h"
#include "checkpoint/checkpoint.h"
#include "gemm/gemm.h"

namespace qtts::cuda {

// The speech tokenizer's decoder of `checkpoint`, which is not needed afterwards, on GPU `device`, with -1 on the first
// that can hold it. Its samples are those that a CudaBackend of this precision makes of the codes, to the bit.
Result<std::unique_ptr<SpeechDecoder>> CreateSpeechDecoder(const Checkpoint& checkpoint, Precision precision,
                                                           int device);

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_SPEECH_DECODER_H_
