// SPDX-License-Identifier: LGPL-2.1-or-later
#include "speech_decoder.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>
#include <utility>

#include "codec/codec.h"
#include "device_choice.h"
#include "runtime/device.h"
#include "runtime/device_memory.h"
#include "runtime/device_wait.h"
#include "runtime/memory_count.h"

namespace qtts::cuda {
namespace {

constexpr const char* kDecoding = "decoding speech";
// Frames per copy of samples to the host: limits the device memory for utterances of any length.
constexpr size_t kFramesAtOnce = 64;

class CudaSpeechDecoder final : public SpeechDecoder {
 public:
  explicit CudaSpeechDecoder(int device) : device_(device) {}
  ~CudaSpeechDecoder() override { (void)Succeeds(cudaSetDevice(device_)); }
  CudaSpeechDecoder(const CudaSpeechDecoder&) = delete;
  CudaSpeechDecoder& operator=(const CudaSpeechDecoder&) = delete;

  Status Load(const Checkpoint& checkpoint, CodecPrecision precision) {
    const DeviceDescription* device = nullptr;
    QTTS_RETURN_IF_CUDA_ERROR(DescribeDevice(&device), "asking for the device");
    name_ = "cuda (" + device->FullName() + ", " + (precision == CodecPrecision::kF32 ? "f32" : "bf16") +
            (precision == CodecPrecision::kFast ? ", fast codec" : "") + ")";
    QTTS_ASSIGN_OR_RETURN(stream_, Stream::Create());
    QTTS_ASSIGN_OR_RETURN(codec_, Codec::Create(checkpoint.config().codec, checkpoint.codec(), precision,
                                                /*max_slots=*/1, /*max_batch=*/1));
    const auto groups = static_cast<size_t>(codec_->code_groups());
    const auto samples = static_cast<size_t>(codec_->samples_per_frame());
    QTTS_ASSIGN_OR_RETURN(slot_, DeviceMemory::AllocateZeroed(sizeof(int32_t)));
    QTTS_ASSIGN_OR_RETURN(codes_, DeviceMemory::Allocate(kFramesAtOnce * groups * sizeof(int32_t)));
    QTTS_ASSIGN_OR_RETURN(pcm_, DeviceMemory::Allocate(kFramesAtOnce * samples * sizeof(float)));
    return Status::Ok();
  }

  const std::string& name() const override { return name_; }

  Result<std::vector<float>> Decode(std::span<const int32_t> codes) override {
    // Calls may come from any thread, and the current device is a thread's.
    QTTS_RETURN_IF_CUDA_ERROR(UseDevice(device_), kDecoding);
    const cudaStream_t at = stream_.get();
    const auto groups = static_cast<size_t>(codec_->code_groups());
    const auto samples = static_cast<size_t>(codec_->samples_per_frame());
    const size_t frames = codes.size() / groups;
    std::vector<float> pcm(frames * samples);
    QTTS_RETURN_IF_ERROR(codec_->Reset(0, at));
    for (size_t first = 0; first < frames; first += kFramesAtOnce) {
      const size_t count = std::min(kFramesAtOnce, frames - first);
      QTTS_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(codes_.data(), codes.data() + first * groups,
                                                count * groups * sizeof(int32_t), cudaMemcpyHostToDevice, at),
                                kDecoding);
      for (size_t i = 0; i < count; ++i) {
        QTTS_RETURN_IF_ERROR(codec_->Decode(1, slot_.as<const int32_t>(), codes_.as<const int32_t>() + i * groups,
                                            pcm_.as<float>() + i * samples, at));
      }
      // The copy to pageable memory returns at its end.
      QTTS_RETURN_IF_ERROR(stream_.Synchronize());
      QTTS_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(pcm.data() + first * samples, pcm_.data(),
                                                count * samples * sizeof(float), cudaMemcpyDeviceToHost, at),
                                kDecoding);
      QTTS_RETURN_IF_ERROR(stream_.Synchronize());
    }
    return pcm;
  }

 private:
  int device_;
  std::string name_;
  Stream stream_;
  std::unique_ptr<Codec> codec_;
  DeviceMemory slot_;   // int32_t: the only one
  DeviceMemory codes_;  // int32_t [kFramesAtOnce][groups]
  DeviceMemory pcm_;    // float [kFramesAtOnce][samples]
};

}  // namespace

Result<size_t> CountDecoderMemory(const Checkpoint& checkpoint, CodecPrecision precision) {
  int device = 0;
  QTTS_RETURN_IF_CUDA_ERROR(cudaGetDevice(&device), "asking for the device");
  MemoryCount count;
  CudaSpeechDecoder decoder(device);
  QTTS_RETURN_IF_ERROR(decoder.Load(checkpoint, precision));
  return count.max_held();
}

Result<std::unique_ptr<SpeechDecoder>> CreateSpeechDecoder(const Checkpoint& checkpoint, CodecPrecision precision,
                                                           int device) {
  QTTS_ASSIGN_OR_RETURN(const int chosen, ChooseDecoderDevice(checkpoint, precision, device));
  auto decoder = std::make_unique<CudaSpeechDecoder>(chosen);
  QTTS_RETURN_IF_ERROR(decoder->Load(checkpoint, precision));
  return std::unique_ptr<SpeechDecoder>(std::move(decoder));
}

}  // namespace qtts::cuda
