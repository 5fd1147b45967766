// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_BACKEND_SPEECH_DECODER_H_
#define QTTS_BACKEND_SPEECH_DECODER_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "qtts/status.h"

namespace qtts {

// The speech tokenizer's decoder of a checkpoint (spec 7) on a device, without the rest of the model. Owned by its
// user. Not thread-safe.
class SpeechDecoder {
 public:
  virtual ~SpeechDecoder() = default;

  // Returns the name for messages, as Backend::name().
  virtual const std::string& name() const = 0;

  // Decodes one utterance: codes [frames][code_groups], each inside the codebook, to [frames * samples_per_frame]
  // samples in [-1, 1]. Not finite if the weights are damaged.
  virtual Result<std::vector<float>> Decode(std::span<const int32_t> codes) = 0;
};

}  // namespace qtts

#endif  // QTTS_BACKEND_SPEECH_DECODER_H_
