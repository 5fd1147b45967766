// SPDX-License-Identifier: LGPL-2.1-or-later
#include "api/speech_decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "api/backend_module.h"
#include "api/device_choice.h"
#include "backend/checks.h"
#include "cpu/cpu_speech_decoder.h"

namespace qtts {
namespace {

// Reports output that is not finite as damaged weights.
class CheckedDecoder final : public SpeechDecoder {
 public:
  explicit CheckedDecoder(std::unique_ptr<SpeechDecoder> decoder) : decoder_(std::move(decoder)) {}

  const std::string& name() const override { return decoder_->name(); }

  Result<std::vector<float>> Decode(std::span<const int32_t> codes) override {
    auto pcm = decoder_->Decode(codes);
    if (pcm.ok() && !std::ranges::all_of(*pcm, [](float sample) { return std::isfinite(sample); })) {
      return DamagedModel(ModelPart::kCodec);
    }
    return pcm;
  }

 private:
  std::unique_ptr<SpeechDecoder> decoder_;
};

}  // namespace

Result<std::unique_ptr<SpeechDecoder>> CreateSpeechDecoder(const EngineOptions& options,
                                                           std::shared_ptr<const Checkpoint> checkpoint) {
  QTTS_RETURN_IF_ERROR(CheckOptions(options));
  QTTS_ASSIGN_OR_RETURN(
      std::unique_ptr<SpeechDecoder> decoder,
      OnChosenDevice<std::unique_ptr<SpeechDecoder>>(
          options, [&](const EngineOptions& gpu) { return CreateDeviceSpeechDecoder(checkpoint, gpu); },
          [&] { return CreateCpuSpeechDecoder(checkpoint, options.threads, ArithmeticOf(options.precision)); }));
  return std::unique_ptr<SpeechDecoder>(std::make_unique<CheckedDecoder>(std::move(decoder)));
}

}  // namespace qtts
