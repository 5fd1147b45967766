// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_BACKEND_VOICE_ENCODER_H_
#define QTTS_BACKEND_VOICE_ENCODER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "qtts/status.h"

namespace qtts {

// The two networks of a Base checkpoint that turn a recording into a voice, on a device. Recordings are mono, 24 kHz,
// finite, with a length that voice/reference.h accepts. Owned by its user. Not thread-safe.
class VoiceEncoder {
 public:
  virtual ~VoiceEncoder() = default;

  // Returns the speaker's x-vector (spec 9), [talker hidden size]. Not finite if the weights are damaged.
  virtual Result<std::vector<float>> SpeakerVector(std::span<const float> pcm) = 0;

  // Returns the speech tokenizer's codes (spec 8), [ceil(samples / samples_per_frame)][code_groups].
  virtual Result<std::vector<int32_t>> Codes(std::span<const float> pcm) = 0;
};

}  // namespace qtts

#endif  // QTTS_BACKEND_VOICE_ENCODER_H_
