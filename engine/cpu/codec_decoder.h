// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_CODEC_DECODER_H_
#define QTTS_CPU_CODEC_DECODER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "checkpoint/weights.h"
#include "cpu/causal_conv.h"
#include "cpu/kv_cache.h"
#include "cpu/linear.h"
#include "cpu/transformer.h"
#include "cpu/weight_packer.h"

namespace qtts::cpu {

// The speech tokenizer's decoder (spec 7): codes to 24 kHz samples, any number of frames at a time.
// Every operator is causal, so a stream's state is what the convolutions and the transformer remember;
// what it gives does not depend on how its frames are cut into calls.
//
// Holds views of the weights, repacked convolutions and scratch memory; not thread-safe.
class CodecDecoder {
 public:
  // In the packer's arithmetic; without one, F32. Layers differ in what they bear (spec 7.6): for kInt8, which kInt4 is
  // here, matrices are quantised in 8 bits and the wide blocks multiply bytes, other blocks BF16; for kBF16 all blocks
  // multiply BF16. All else is F32 arithmetic, on F16 where the weights are F32.
  CodecDecoder(const CodecConfig& config, const CodecWeights& weights, ThreadPool& pool,
               WeightPacker* packer = nullptr);

  int64_t samples_per_frame() const { return config_.samples_per_frame; }
  int64_t code_groups() const { return static_cast<int64_t>(codebooks_.size()); }
  int64_t codebook_size() const { return config_.codebook_size; }

  // What one stream has heard so far. Starts silent.
  class State {
   public:
    // May throw std::bad_alloc.
    State Copy() const;
    size_t bytes() const;

   private:
    friend class CodecDecoder;
    explicit State(KvCache kv_cache) : cache(std::move(kv_cache)) {}
    KvCache cache;
    // One for each operator that looks back, in order of use; made in the first call.
    std::vector<std::vector<std::byte>> histories;
    size_t next = 0;  // the history that comes next, within a call
  };
  State NewState() const;

  // Decodes codes [frames][code_groups], each in [0, codebook_size), to pcm [frames * samples_per_frame]
  // in [-1, 1] (NaN if the weights give it).
  void Decode(State* state, std::span<const int32_t> codes, std::span<float> pcm);

  // What Decode() makes of `state`, bit for bit, without the sound, of which only the end is computed: behind the
  // transformer, the operators look back a few frames. One piece at a time, about a frame's work each: from frame
  // `begin` on, which is where the last piece ended, at first 0. Returns the frame behind the piece.
  int64_t Prime(State* state, std::span<const int32_t> codes, int64_t begin);

  // Cost of decoding a frame, in multiply-adds of a matrix product.
  int64_t FrameWork() const { return frame_work_; }

 private:
  // Of weights in the packer's form.
  CodecDecoder(const CodecConfig& config, const CodecWeights& weights, WeightPacker* packer, ThreadPool& pool);

  struct Codebook {
    MatrixView sums;
    std::vector<float> usage;
  };
  struct Snake {
    explicit Snake(const SnakeWeights& weights);
    SnakeView fast() const { return {turns.data(), inverse_b.data()}; }
    std::vector<float> a, inverse_b;
    std::vector<float> turns;  // a / pi
  };
  struct ConvNeXt {
    ConvNeXt(const ConvNeXtWeights& weights, int64_t stride, ThreadPool& pool, CausalConv::Form form,
             WeightPacker* packer);
    int64_t stride;
    CausalConv transposed;
    std::vector<float> depthwise, depthwise_bias;  // [taps][channels]
    std::vector<float> norm_weight, norm_bias;
    Linear expand, contract;
    std::vector<float> gamma;
  };
  struct ResidualUnit {
    ResidualUnit(const ResidualUnitWeights& weights, int64_t dilation, ThreadPool& pool, CausalConv::Form form);
    Snake act1;
    CausalConv conv1;
    Snake act2;
    CausalConv conv2;
  };
  struct Block {
    Block(const DecoderBlockWeights& weights, int64_t stride, ThreadPool& pool, CausalConv::Form form);
    int64_t stride;
    Snake snake;
    CausalConv transposed;
    std::vector<ResidualUnit> residuals;
  };

  void DecodeChunk(State* state, std::span<const int32_t> codes, std::span<float> pcm);
  // The two parts of it: codes to the transformer's outputs, and these to samples; both in x_.
  void RunLatents(State* state, std::span<const int32_t> codes);
  void RunSound(State* state);
  // Frames before the present one on which RunSound() depends at most.
  int64_t SoundHistory() const;
  // Cost of a frame in RunLatents() and in RunSound().
  int64_t LatentWork() const;
  int64_t SoundWork() const;
  // codes -> vectors y [frames][codebook_dim].
  void Dequantize(std::span<const int32_t> codes, float* y);
  void PreTransformer(State* state);
  void RunConvNeXt(State* state, const ConvNeXt& stage);
  void RunBlock(State* state, const Block& block);
  void RunResidual(State* state, const ResidualUnit& unit);
  // y = snake(x), of rows_ rows.
  void RunSnake(const Snake& snake, const float* x, float* y);
  // The rows_ rows of `x` as `conv` takes them, through `snake` unless that is null.
  void Prepare(const CausalConv& conv, const Snake* snake, const float* x, std::byte* y);

  // The input of an operator that looks back `history` rows: those rows, remembered from the call
  // before, then rows_ new ones of `row_bytes`, which `fill` writes. What the next call needs is
  // remembered. Valid until the next call.
  template <typename Fill>
  const std::byte* Window(State* state, int64_t history, int64_t row_bytes, const Fill& fill);
  // Replaces x_ by `conv` of the window of `fill`, its outputs cut into `stride` rows each.
  template <typename Fill>
  void Convolve(State* state, const CausalConv& conv, int64_t stride, const Fill& fill);

  CodecConfig config_;
  ThreadPool& pool_;
  bool exact_;                              // F32 arithmetic: the bits do not change
  std::unique_ptr<WeightPacker> matrices_;  // quantised, or null
  std::vector<Codebook> codebooks_;
  Linear semantic_projection_, acoustic_projection_;
  CausalConv pre_conv_;
  Linear input_projection_, output_projection_;
  Transformer transformer_;
  std::vector<ConvNeXt> upsample_;
  CausalConv first_conv_;
  std::vector<Block> blocks_;
  Snake last_snake_;
  CausalConv last_conv_;
  int64_t sound_history_ = 0;
  int64_t frame_work_ = 0;
  int64_t latent_frames_ = 1;  // of one piece of Prime()

  // x_ [rows_][width_] is what flows from stage to stage; the others are scratch within one.
  std::vector<float> x_;
  int64_t rows_ = 0;
  int64_t width_ = 0;
  std::vector<std::byte> window_, prepared_;
  std::vector<float> inner_, wide_;
};

}  // namespace qtts::cpu

#endif  // QTTS_CPU_CODEC_DECODER_H_
