// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_SPEECH_DECODER_H_
#define QTTS_CUDA_SPEECH_DECODER_H_

#include <memory>

#include "backend/speech_decoder.h"
#include "checkpoint/checkpoint.h"
#include "codec/codec.h"

namespace qtts::cuda {

// Finds the device memory of such a decoder on the current device by counting (runtime/memory_count.h): the most at any
// time of the load.
Result<size_t> CountDecoderMemory(const Checkpoint& checkpoint, CodecPrecision precision);

// Creates the speech tokenizer's decoder of `checkpoint` on GPU `device`, or for -1 on the first that can hold it.
// `checkpoint` may be freed afterwards. The samples equal those of a CudaBackend with a codec of
// this precision, bit for bit.
Result<std::unique_ptr<SpeechDecoder>> CreateSpeechDecoder(const Checkpoint& checkpoint, CodecPrecision precision,
                                                           int device);

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_SPEECH_DECODER_H_
