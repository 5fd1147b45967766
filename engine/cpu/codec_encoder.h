// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_CODEC_ENCODER_H_
#define QTTS_CPU_CODEC_ENCODER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/voice_encoder.h"
#include "cpu/causal_conv.h"
#include "cpu/linear.h"
#include "cpu/thread_pool.h"

namespace qtts::cpu {

// The speech tokenizer's encoder (spec 8): turns a recording into codes, 12.5 frames a second.
//
// Attention covers the whole past, as in the official package: the config's window acts only in attention kernels that
// the package does not select for the codec.
//
// Holds views of the weights, repacked convolutions and scratch memory. Not thread-safe.
class CodecEncoder {
 public:
  CodecEncoder(const CodecEncoderConfig& config, const CodecEncoderWeights& weights, ThreadPool& pool);

  int64_t samples_per_frame() const { return config_.samples_per_frame; }
  int64_t code_groups() const { return static_cast<int64_t>(codebooks_.size()); }

  // Encodes pcm (24 kHz, not empty) to codes [ceil(samples / samples_per_frame)][code_groups].
  std::vector<int32_t> Encode(std::span<const float> pcm);

 private:
  struct Stage {
    Stage(const EncoderStageWeights& weights, int64_t stride, ThreadPool& pool);
    CausalConv residual1, residual2;
    CausalConv strided;
    int64_t stride;
  };
  struct Layer {
    explicit Layer(const EncoderLayerWeights& weights);
    std::vector<float> input_norm, input_norm_bias, post_norm, post_norm_bias;
    Linear q, k, v, o, fc1, fc2;
    std::vector<float> attention_scale, mlp_scale;
  };
  struct Codebook {
    explicit Codebook(const CodebookWeights& weights);
    int64_t dim;
    std::vector<float> codewords;  // [entries][dim]
    std::vector<float> squares;    // squared norms of the codewords
  };

  // Converts pcm to rows [rows][hidden] at twice the frame rate.
  std::vector<float> Convolutions(std::span<const float> pcm);
  // Runs the convolutions over the next part of the recording. histories_ keeps their history between parts.
  void ConvolveChunk(std::span<const float> pcm, std::vector<float>* out);
  void RunStage(const Stage& stage);
  void Transform(std::vector<float>* x) const;
  void Attention(const Layer& layer, int64_t rows, float* x) const;
  void Mlp(const Layer& layer, int64_t rows, float* x) const;
  // Converts [rows][hidden] to half as many rows, rounded up.
  std::vector<float> Downsample(const std::vector<float>& x) const;
  std::vector<int32_t> Quantize(const std::vector<float>& x) const;
  // Returns the index of the codeword nearest to each row of x [rows][dim].
  std::vector<int32_t> Nearest(const Codebook& codebook, const std::vector<float>& x) const;

  // Returns ELU(x_), preceded by the `history` rows of the last chunk, with space for `more` rows at the end. Keeps the
  // history for the next chunk. Valid until the next call.
  float* EluWindow(int64_t history, int64_t more = 0);

  CodecEncoderConfig config_;
  ThreadPool& pool_;
  CausalConv first_conv_;
  std::vector<Stage> stages_;
  CausalConv last_conv_;
  std::vector<Layer> layers_;
  CausalConv downsample_;
  Linear semantic_projection_, acoustic_projection_;
  std::vector<Codebook> codebooks_;

  // x_ [rows_][width_] is the output of each stage and the input of the next.
  std::vector<float> x_;
  int64_t rows_ = 0;
  int64_t width_ = 0;
  std::vector<float> window_, inner_;
  // One for each operator that looks back, in order of use.
  std::vector<std::vector<float>> histories_;
  size_t next_history_ = 0;
};

}  // namespace qtts::cpu

#endif  // QTTS_CPU_CODEC_ENCODER_H_
