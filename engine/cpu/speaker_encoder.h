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

// The speaker encoder of Base checkpoints (spec 9), an ECAPA-TDNN: from a recording of any length to
// one x-vector.
//
// Holds repacked weights; not thread-safe.
class SpeakerEncoder {
 public:
  SpeakerEncoder(const SpeakerEncoderConfig& config, const SpeakerEncoderWeights& weights, ThreadPool& pool);

  // Samples needed at least: less cannot be reflected at the ends of every layer.
  int64_t least_samples() const;

  // pcm, 24 kHz, at least least_samples(), to the x-vector [enc_dim] (NaN if the weights give it).
  std::vector<float> Encode(std::span<const float> pcm) const;
  // The part after the spectrogram: mels [rows][mel_bins].
  std::vector<float> EncodeMels(const std::vector<float>& mels) const;

 private:
  using Rows = std::vector<float>;  // [time][channels]

  struct Block {
    Block(const Res2NetWeights& weights, int64_t dilation, ThreadPool& pool);
    CausalConv tdnn1, tdnn2;
    std::vector<CausalConv> branches;
    CausalConv squeeze, excite;
  };

  // A convolution of the input's length: both ends are reflected, the first and last rows not repeated.
  Rows Convolve(const CausalConv& conv, const Rows& x) const;
  Rows Tdnn(const CausalConv& conv, const Rows& x) const;
  Rows RunBlock(const Block& block, const Rows& x) const;
  Rows Res2Net(const Block& block, const Rows& x) const;
  // x *= its channels' gates.
  void SqueezeExcite(const Block& block, Rows* x) const;
  // Attentive statistics: [time][channels] to means and deviations [2 * channels].
  std::vector<float> Pool(const Rows& x) const;
  // Weights of each row in each channel, before the softmax over time.
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
