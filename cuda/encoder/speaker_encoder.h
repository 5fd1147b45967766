// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_ENCODER_SPEAKER_ENCODER_H_
#define QTTS_CUDA_ENCODER_SPEAKER_ENCODER_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "checkpoint/voice_encoder.h"
#include "encoder/weights.h"
#include "qtts/status.h"
#include "runtime/arena.h"
#include "runtime/queue.h"
#include "runtime/scratch.h"

namespace qtts::cuda::encoder {

// The speaker encoder of Base checkpoints (spec 9), an ECAPA-TDNN, on the current device: from a recording of any
// length to one x-vector. F32; the spectrogram F64.
//
// Owns its weights (F32) on the device; the device it was made on must be current in all calls. Calls wait for their
// work. Not thread-safe.
class SpeakerEncoder {
 public:
  // Loads the weights, which are not needed afterwards. kResourceExhausted where the device has no room for them.
  static Result<std::unique_ptr<SpeakerEncoder>> Create(const SpeakerEncoderConfig& config,
                                                        const SpeakerEncoderWeights& weights, cudaStream_t stream);

  // Returns the minimum number of samples: shorter inputs cannot be reflected at the ends in every layer.
  int64_t least_samples() const;

  // Encodes pcm, 24 kHz, at least least_samples(), to the x-vector [enc_dim] (NaN if the weights give it).
  Result<std::vector<float>> Encode(std::span<const float> pcm, Scratch* scratch, cudaStream_t stream) const;
  // Computes the spectrogram alone, [MelTables::Frames(samples)][mel_bins]. For tests.
  Result<std::vector<float>> Mels(std::span<const float> pcm, Scratch* scratch, cudaStream_t stream) const;

  size_t device_bytes() const { return memory_.total(); }

 private:
  struct Block {
    Layer tdnn1, tdnn2, squeeze, excite;
    std::vector<Layer> branches;
    int dilation = 1;
  };
  // Arrays of one recording, see Encode().
  struct Arrays;

  SpeakerEncoder() = default;
  void ComputeSpectrogram(std::span<const float> pcm, float* device_pcm, float* mels, Queue* queue) const;
  void RunBlock(const Block& block, const Arrays& arrays, const ConstSignal& x, const Signal& y, Queue* queue) const;
  // Computes the attentive statistics of arrays.aggregated, arrays.pooled.
  void Pool(const Arrays& arrays, Queue* queue) const;

  SpeakerEncoderConfig config_;
  Arena memory_;
  Spectrogram tables_;  // without its arrays of a recording
  Layer first_;
  std::vector<Block> blocks_;
  Layer aggregate_, attention_tdnn_, attention_, output_;
};

}  // namespace qtts::cuda::encoder

#endif  // QTTS_CUDA_ENCODER_SPEAKER_ENCODER_H_
