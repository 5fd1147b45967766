// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_CODEC_DECODER_H_
#define QTTS_CPU_CODEC_DECODER_H_

#include <cstdint>
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

// The speech tokenizer's decoder (spec 7): turns codes into 24 kHz samples, any number of frames per call. Every
// operator is causal. A stream's state is the history of the convolutions and the KV cache of the transformer, so the
// samples do not depend on how the frames are split into calls.
//
// Holds views of the weights, repacked convolutions and scratch memory. Not thread-safe.
class CodecDecoder {
 public:
  // Uses the packer's arithmetic, or F32 if `packer` is null. Layers tolerate different precision (spec 7.6). kInt8 and
  // kInt4 both give 8-bit matrices, 8-bit convolutions in the wide blocks except the first, and BF16 convolutions in
  // the other blocks. kBF16 gives BF16 convolutions in all blocks. With all three, the other layers compute in F32,
  // with F32 weights kept as F16 if they fit.
  CodecDecoder(const CodecConfig& config, const CodecWeights& weights, ThreadPool& pool,
               WeightPacker* packer = nullptr);

  int64_t samples_per_frame() const { return config_.samples_per_frame; }
  int64_t code_groups() const { return static_cast<int64_t>(codebooks_.size()); }
  int64_t codebook_size() const { return config_.codebook_size; }

  // State of one stream. A new state stands for silence.
  class State {
   public:
    // Returns a copy. May throw std::bad_alloc.
    State Copy() const;
    size_t bytes() const;

   private:
    friend class CodecDecoder;
    explicit State(KvCache kv_cache) : cache(std::move(kv_cache)) {}
    KvCache cache;
    // One per operator with a history, in order of use. Created by the first call.
    std::vector<std::vector<std::byte>> histories;
    size_t next = 0;  // index of the next history within a call
  };
  State NewState() const;

  // Decodes codes [frames][code_groups], each in [0, codebook_size), to pcm [frames * samples_per_frame] in [-1, 1].
  // Damaged weights may give NaN.
  void Decode(State* state, std::span<const int32_t> codes, std::span<float> pcm);

  // Brings `state` to the state that Decode() would leave, bit for bit, at less cost: the operators after the
  // transformer look back a few frames only, so they run for the last frames alone. Runs one piece of about one frame's
  // work, starting at frame `begin` (0 at first, then the result of the last call). Returns the first frame of the next
  // piece.
  int64_t Prime(State* state, std::span<const int32_t> codes, int64_t begin);

  // Returns the cost of decoding one frame, in multiply-adds of a matrix product.
  int64_t FrameWork() const { return frame_work_; }

 private:
  // `weights` are in the packer's format.
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
  // Runs one half of DecodeChunk(): codes to the transformer's outputs in x_, then x_ to samples.
  void RunLatents(State* state, std::span<const int32_t> codes);
  void RunSound(State* state);
  // Returns the maximum number of earlier frames that the output of RunSound() depends on.
  int64_t SoundHistory() const;
  // Returns the cost of one frame in RunLatents() and in RunSound().
  int64_t LatentWork() const;
  int64_t SoundWork() const;
  // Looks up codes: vectors y [frames][codebook_dim].
  void Dequantize(std::span<const int32_t> codes, float* y);
  void PreTransformer(State* state);
  void RunConvNeXt(State* state, const ConvNeXt& stage);
  void RunBlock(State* state, const Block& block);
  void RunResidual(State* state, const ResidualUnit& unit);
  // Computes y = snake(x), for rows_ rows.
  void RunSnake(const Snake& snake, const float* x, float* y);
  // Converts the rows_ rows of `x` to the input format of `conv`, after `snake` unless it is null.
  void Prepare(const CausalConv& conv, const Snake* snake, const float* x, std::byte* y);

  // Returns the input of an operator with a history of `history` rows: the rows kept from the last call, then rows_ new
  // rows of `row_bytes`, written by `fill`. Keeps the history for the next call. Valid until the next call.
  template <typename Fill>
  const std::byte* Window(State* state, int64_t history, int64_t row_bytes, const Fill& fill);
  // Replaces x_ with `conv` of the window that `fill` writes. Each output row is split into `stride` rows.
  template <typename Fill>
  void Convolve(State* state, const CausalConv& conv, int64_t stride, const Fill& fill);

  CodecConfig config_;
  ThreadPool& pool_;
  bool exact_;  // F32 arithmetic: output is bit-exact
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
  int64_t latent_frames_ = 1;  // per piece of Prime()

  // x_ [rows_][width_] is the output of each stage and the input of the next. The others are scratch of one stage.
  std::vector<float> x_;
  int64_t rows_ = 0;
  int64_t width_ = 0;
  std::vector<std::byte> window_, prepared_;
  std::vector<float> inner_, wide_;
};

}  // namespace qtts::cpu

#endif  // QTTS_CPU_CODEC_DECODER_H_
