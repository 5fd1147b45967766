// SPDX-License-Identifier: LGPL-2.1-or-later
#include "encoder/voice_encoder.h"

#include <cuda_runtime_api.h>

#include <optional>
#include <utility>

#include "encoder/codec_encoder.h"
#include "encoder/kernels.h"
#include "encoder/speaker_encoder.h"
#include "runtime/code_load.h"
#include "runtime/device_memory.h"
#include "runtime/device_wait.h"
#include "runtime/scratch.h"

namespace qtts::cuda {
namespace {

class CudaVoiceEncoder final : public VoiceEncoder {
 public:
  CudaVoiceEncoder(std::shared_ptr<const Checkpoint> checkpoint, int device)
      : checkpoint_(std::move(checkpoint)), device_(device) {}
  ~CudaVoiceEncoder() override { (void)Succeeds(cudaSetDevice(device_)); }
  CudaVoiceEncoder(const CudaVoiceEncoder&) = delete;
  CudaVoiceEncoder& operator=(const CudaVoiceEncoder&) = delete;

  Result<std::vector<float>> SpeakerVector(std::span<const float> pcm) override {
    QTTS_RETURN_IF_ERROR(Begin());
    if (speaker_ == nullptr) {
      QTTS_ASSIGN_OR_RETURN(
          speaker_, encoder::SpeakerEncoder::Create(files_->config.speaker, files_->weights.speaker, stream_->get()));
    }
    if (static_cast<int64_t>(pcm.size()) < speaker_->least_samples()) {
      return Status::InvalidArgument("the recording is too short for the speaker encoder");
    }
    return speaker_->Encode(pcm, &scratch_, stream_->get());
  }

  Result<std::vector<int32_t>> Codes(std::span<const float> pcm) override {
    QTTS_RETURN_IF_ERROR(Begin());
    if (codec_ == nullptr) {
      QTTS_ASSIGN_OR_RETURN(codec_,
                            encoder::CodecEncoder::Create(files_->config.codec, files_->weights.codec, stream_->get()));
    }
    return codec_->Encode(pcm, &scratch_, stream_->get());
  }

 private:
  // Calls may come from any thread, and the current device is a thread's.
  Status Begin() {
    QTTS_RETURN_IF_CUDA_ERROR(UseDevice(device_), "choosing the device");
    if (!files_.has_value()) {
      QTTS_ASSIGN_OR_RETURN(files_, checkpoint_->OpenVoiceEncoder());
    }
    if (!stream_.has_value()) {
      QTTS_ASSIGN_OR_RETURN(stream_, Stream::Create());
    }
    return Status::Ok();
  }

  std::shared_ptr<const Checkpoint> checkpoint_;
  int device_;
  std::optional<Checkpoint::VoiceEncoder> files_;  // configs, and views of the weights
  std::optional<Stream> stream_;
  std::unique_ptr<encoder::SpeakerEncoder> speaker_;
  std::unique_ptr<encoder::CodecEncoder> codec_;
  Scratch scratch_;
};

}  // namespace

std::unique_ptr<VoiceEncoder> CreateVoiceEncoder(std::shared_ptr<const Checkpoint> checkpoint, int device) {
  return std::make_unique<CudaVoiceEncoder>(std::move(checkpoint), device);
}

Status LoadVoiceEncoderCode() {
  const CodeLoad loading;
  for (const cudaError_t error :
       {encoder::Pack({}, nullptr), encoder::PackCodebook({}, nullptr), encoder::ComputeMels({}, nullptr),
        encoder::Convolve({}, nullptr), encoder::ComputeStatistics({}, nullptr), encoder::Gate({}, nullptr),
        encoder::Normalize({}, nullptr), encoder::Rotate({}, nullptr), encoder::Attend({}, nullptr),
        encoder::Quantize({}, nullptr)}) {
    QTTS_RETURN_IF_CUDA_ERROR(error, "loading the voice encoder's code");
  }
  return Status::Ok();
}

}  // namespace qtts::cuda
