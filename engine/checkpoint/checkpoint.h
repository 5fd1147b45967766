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

// A model folder as published (spec 1.1), opened: configs parsed, weight files mapped, every tensor
// of the synthesis path found and checked. Immutable and thread-safe; the views inside point into
// its mappings.
class Checkpoint {
 public:
  // Opens `folder`. Reads configs and headers, no weights. Anything missing, misshapen, truncated
  // or oversized is one error that names file, tensor or key, expected and found.
  static Result<std::shared_ptr<const Checkpoint>> Open(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const ModelConfig& config() const { return config_; }
  const TalkerWeights& talker() const { return talker_; }
  const PredictorWeights& predictor() const { return predictor_; }
  const CodecWeights& codec() const { return codec_; }
  ModelInfo Info() const;

  // Whether the weight files are what they were when they were opened; else kUnreadable. Who computes with weights asks
  // after it did and before it hands the outcome out. Takes about a microsecond.
  Status CheckFiles() const;

  // Tells the weights apart from any others, and from themselves after a change of their files. Reads as much as
  // Fingerprint().
  std::string Identity() const;

  // The tensor whose view's data this is: "model/" or "codec/" and its name; empty if it is none.
  std::string NameOf(const void* data) const;

  // Lets go of the memory that weights take which have been packed into something else: they may be read again, from
  // the file.
  void Release(std::span<const std::byte> weights) const;

  // The encoders that clone voices: their configs, and views of their weights. kInvalidArgument where
  // the checkpoint is no Base one; else the errors of Open().
  struct VoiceEncoder {
    VoiceEncoderConfig config;
    VoiceEncoderWeights weights;
  };
  Result<VoiceEncoder> OpenVoiceEncoder() const;

  // Tells models apart whose voices are not each other's, in hexadecimal digits: a checksum of small
  // tensors that any training changes, of the talker, the codec and, in Base, the speaker encoder.
  // Reads some ten kB of weights.
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
