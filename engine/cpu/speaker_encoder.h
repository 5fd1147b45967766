// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_SPEAKER_ENCODER_H_
#define QTTS_CPU_SPEAKER_ENCODER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/voice_encoder.h"
#include "cpu/causal_conv.h"
#include "cpu/mel_spectrogram.h"
#include "cpu/thread_pool.h"

namespace qtts::cpu {

// The speaker encoder of Base checkpoints (spec 9), an ECAPA-TDNN: turns a recording of any length into one x-vector.
//
// Holds repacked weights. Not thread-safe.
class SpeakerEncoder {
 public:
  SpeakerEncoder(const SpeakerEncoderConfig& config, const SpeakerEncoderWeights& weights, ThreadPool& pool);

  // Returns the minimum number of samples: shorter inputs cannot be reflected at the ends in every layer.
  int64_t least_samples() const;

  // Encodes pcm (24 kHz, at least least_samples()) to the x-vector [enc_dim]. Damaged weights may give NaN.
  std::vector<float> Encode(std::span<const float> pcm) const;
  // Encodes a spectrogram: mels [rows][mel_bins].
  std::vector<float> EncodeMels(const std::vector<float>& mels) const;

 private:
  using Rows = std::vector<float>;  // [time][channels]

  struct Block {
    Block(const Res2NetWeights& weights, int64_t dilation, ThreadPool& pool);
    CausalConv tdnn1, tdnn2;
    std::vector<CausalConv> branches;
    CausalConv squeeze, excite;
  };

  // Runs a convolution with as many output rows as input rows. Both ends are padded by reflection, without repeating
  // the first and last rows.
  Rows Convolve(const CausalConv& conv, const Rows& x) const;
  Rows Tdnn(const CausalConv& conv, const Rows& x) const;
  Rows RunBlock(const Block& block, const Rows& x) const;
  Rows Res2Net(const Block& block, const Rows& x) const;
  // Multiplies x by the gate of each channel.
  void SqueezeExcite(const Block& block, Rows* x) const;
  // Pools by attentive statistics: [time][channels] to means and standard deviations [2 * channels].
  std::vector<float> Pool(const Rows& x) const;
  // Returns the attention scores per row and channel, before the softmax over time.
  Rows AttentionScores(const Rows& x) const;

  SpeakerEncoderConfig config_;
  ThreadPool& pool_;
  MelSpectrogram mels_;
  CausalConv first_;
  std::vector<Block> blocks_;
  CausalConv aggregate_;
  CausalConv attention_tdnn_, attention_;
  CausalConv output_;
};

}  // namespace qtts::cpu

#endif  // QTTS_CPU_SPEAKER_ENCODER_H_
