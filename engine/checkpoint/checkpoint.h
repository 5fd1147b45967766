// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CHECKPOINT_CHECKPOINT_H_
#define QTTS_CHECKPOINT_CHECKPOINT_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "checkpoint/config.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/voice_encoder.h"
#include "checkpoint/weights.h"
#include "qtts/model_info.h"
#include "qtts/status.h"

namespace qtts {

// An open model folder as published (spec 1.1): configs parsed, weight files mapped, all tensors for synthesis found
// and checked. Immutable and thread-safe. Its views point into its mappings.
class Checkpoint {
 public:
  // Opens `folder`. Reads configs and headers, not weights. The first missing, malformed, truncated or oversized item
  // is an error that names the file, the tensor or key, and the expected and found values.
  static Result<std::shared_ptr<const Checkpoint>> Open(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const ModelConfig& config() const { return config_; }
  const TalkerWeights& talker() const { return talker_; }
  const PredictorWeights& predictor() const { return predictor_; }
  const CodecWeights& codec() const { return codec_; }
  ModelInfo Info() const;

  // Checks that the weight files have not changed since they were opened; otherwise kUnreadable. Call it after a
  // computation with weights and before its result is used. Takes about 1 us.
  Status CheckFiles() const;

  // Identifies the weights. Differs for other weights and after a change of the files. Reads as much as Fingerprint().
  std::string Identity() const;

  // Returns the name of the tensor with this data pointer, with the prefix "model/" or "codec/"; empty if there is
  // none.
  std::string NameOf(const void* data) const;

  // Releases the physical memory of weights that have been packed elsewhere. They can still be read, again from the
  // file.
  void Release(std::span<const std::byte> weights) const;

  // The encoders that clone voices: configs and views of their weights. kInvalidArgument if the checkpoint is not a
  // Base one; otherwise the errors of Open().
  struct VoiceEncoder {
    VoiceEncoderConfig config;
    VoiceEncoderWeights weights;
  };
  Result<VoiceEncoder> OpenVoiceEncoder() const;

  // Identifies models with compatible voices, in hexadecimal digits. A checksum of small tensors that any training
  // changes: of the talker, the codec and, for Base, the speaker encoder. Reads about ten kB of weights.
  std::string Fingerprint() const;

 private:
  Checkpoint() = default;

  std::string folder_;
  ModelConfig config_;
  std::shared_ptr<const TensorStore> model_store_;
  std::shared_ptr<const TensorStore> codec_store_;
  TalkerWeights talker_;
  PredictorWeights predictor_;
  CodecWeights codec_;
};

}  // namespace qtts

#endif  // QTTS_CHECKPOINT_CHECKPOINT_H_
