// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/cpu_voice_encoder.h"

#include <new>
#include <string>
#include <utility>

#include "cpu/codec_encoder.h"
#include "cpu/speaker_encoder.h"
#include "cpu/thread_choice.h"
#include "cpu/thread_pool.h"
#include "qtts/resources.h"

namespace qtts {
namespace {

Status NoMemoryToClone() {
  return CatchExhaustion("clone a voice", [] {
    return Status::ResourceExhausted("not enough memory to clone a voice; use a shorter recording");
  });
}

class CpuVoiceEncoder final : public VoiceEncoder {
 public:
  CpuVoiceEncoder(std::shared_ptr<const Checkpoint> checkpoint, Checkpoint::VoiceEncoder encoder, int threads)
      : checkpoint_(std::move(checkpoint)), encoder_(std::move(encoder)), pool_(threads) {}

  Result<std::vector<float>> SpeakerVector(std::span<const float> pcm) override {
    try {
      const cpu::SpeakerEncoder speaker(encoder_.config.speaker, encoder_.weights.speaker, pool_);
      if (static_cast<int64_t>(pcm.size()) < speaker.least_samples()) {
        return Status::InvalidArgument("the recording is too short for the speaker encoder");
      }
      return speaker.Encode(pcm);
    } catch (const std::bad_alloc&) {
      return NoMemoryToClone();
    }
  }

  Result<std::vector<int32_t>> Codes(std::span<const float> pcm) override {
    try {
      return cpu::CodecEncoder(encoder_.config.codec, encoder_.weights.codec, pool_).Encode(pcm);
    } catch (const std::bad_alloc&) {
      return NoMemoryToClone();
    }
  }

 private:
  std::shared_ptr<const Checkpoint> checkpoint_;
  Checkpoint::VoiceEncoder encoder_;
  cpu::ThreadPool pool_;
};

}  // namespace

Result<std::unique_ptr<VoiceEncoder>> CreateCpuVoiceEncoder(std::shared_ptr<const Checkpoint> checkpoint, int threads) {
  QTTS_ASSIGN_OR_RETURN(Checkpoint::VoiceEncoder encoder, checkpoint->OpenVoiceEncoder());
  threads = cpu::ThreadsForArithmetic(threads);
  return CatchExhaustion("clone a voice", [&]() -> Result<std::unique_ptr<VoiceEncoder>> {
    return std::unique_ptr<VoiceEncoder>(
        std::make_unique<CpuVoiceEncoder>(std::move(checkpoint), std::move(encoder), threads));
  });
}

}  // namespace qtts
