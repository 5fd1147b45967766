// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CODEC_STEPS_H_
#define QTTS_CUDA_CODEC_STEPS_H_

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "checkpoint/weights.h"
#include "codec/kernels.h"
#include "codec/weights.h"
#include "qtts/status.h"
#include "runtime/arena.h"

// What makes samples of a frame's codes: a list of steps, a kernel each, that lacks only what a call brings.
namespace qtts::cuda::codec {

// A matrix product and its input's form.
struct GemmStep {
  GemmArgs args;
  Planes x_planes = Planes::kF32;
};

using Step = std::variant<DequantizeArgs, GemmStep, AttentionArgs, DepthwiseArgs, LastConvArgs>;

// How the products of some layers are made: their inputs, and whether their weights are two halves as well.
struct Form {
  Planes x = Planes::kF32;
  bool split_weights = false;
};

// Writes down the steps of a frame in `steps`, and puts their weights and the arrays between them into `memory`; both
// are the caller's and outlive the builder. The other arguments must outlive it, and are not needed afterwards. One
// Build() only, on the current device and the default stream, for whose end it waits; after it the sizes hold.
// Not thread-safe.
class Builder {
 public:
  Builder(const CodecConfig& config, const CodecWeights& weights, const DeviceTraits& device, Form early, Form late,
          int max_slots, int max_batch, Arena* memory, std::vector<Step>* steps)
      : config_(config),
        weights_(weights),
        device_(device),
        early_(early),
        late_(late),
        max_slots_(max_slots),
        max_batch_(max_batch),
        packer_(memory),
        steps_(*steps) {}

  // kUnsupported for structures that the kernels do not cover.
  Status Build();
  // Bytes of a slot's state.
  size_t state_bytes() const { return state_bytes_; }
  // Steps up to the pre-transformer's last.
  size_t latent_steps() const { return latent_steps_; }
  // Steps of Codec::Begin().
  size_t early_steps() const { return early_steps_; }
  // Frames before one that its samples depend on, besides those that the pre-transformer sees.
  int SoundHistory() const;

 private:
  // A place in every slot's state.
  int64_t Remember(size_t bytes);

  // Adds a product; the caller completes its epilogue.
  GemmArgs& AddGemm(const Dense& dense, int dilation, const Source& x, Form form);
  // Directs the last step's output to the next operator, which looks back `look_back` rows and takes its input
  // in `planes`. `rows` and `channels` (padded) as the next operator sees them.
  Source Feed(int rows, int channels, int look_back, Planes planes, const Snake& snake = {}, float* to = nullptr);
  static Sink* SinkOf(Step* step);

  void Dequantization();
  void PreTransformer();
  void Layer(const TransformerLayerWeights& layer, const float* rotations);
  void UpsampleStage(size_t index);
  void DecoderBlock(size_t index);
  // A product whose input is to be divided by the hidden stream's root mean square.
  void NormalizeInput(GemmArgs* gemm) const;
  int64_t WidestRow() const;
  Status CheckStructure() const;
  // What the decoder reads after stage `index` of upsampling (or none of it).
  Source FeedAfterUpsample(size_t next);
  Dense OutputProjection();

  const CodecConfig& config_;
  const CodecWeights& weights_;
  const DeviceTraits& device_;
  const Form early_, late_;
  const int max_slots_, max_batch_;
  WeightPacker packer_;
  std::vector<Step>& steps_;

  float* hidden_ = nullptr;    // F32 stream of the pre-transformer
  float* residual_ = nullptr;  // F32 stream of the stage at hand, after it
  void* operands_[2] = {};     // by turns: what the next operator reads
  int next_operand_ = 0;
  size_t state_bytes_ = 0;
  size_t latent_steps_ = 0;
  size_t early_steps_ = 0;
  Source x_;      // the next operator's input
  int rows_ = 1;  // per frame, at this point
};

}  // namespace qtts::cuda::codec

#endif  // QTTS_CUDA_CODEC_STEPS_H_
