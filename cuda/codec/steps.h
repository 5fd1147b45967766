// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CODEC_STEPS_H_
#define QTTS_CUDA_CODEC_STEPS_H_

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "checkpoint/weights.h"
#include "codec/codec.h"
#include "codec/kernels.h"
#include "codec/weights.h"
#include "qtts/status.h"
#include "runtime/arena.h"

// The steps that turn a frame's codes into samples: one kernel each, complete except for the arguments of a call.
namespace qtts::cuda::codec {

// A matrix product and how its input is stored.
struct GemmStep {
  GemmArgs args;
  Planes x_planes = Planes::kF32;
  UnitWeights unit = {};  // of this product and the next one
};

using Step = std::variant<DequantizeArgs, GemmStep, AttentionArgs, DepthwiseArgs, LastConvArgs>;

// Returns how the operands of products are stored.
Planes PlanesOf(CodecPrecision precision);

// Writes down the steps of a frame in `steps`, and puts their weights and the arrays between them into `memory`; both
// are the caller's and outlive the builder. The other arguments must outlive it, and are not needed afterwards. One
// Build() only, on the current device and the default stream, for whose end it waits; after it the sizes hold.
// Not thread-safe.
class Builder {
 public:
  Builder(const CodecConfig& config, const CodecWeights& weights, const DeviceTraits& device, CodecPrecision precision,
          int max_slots, int max_batch, Arena* memory, std::vector<Step>* steps)
      : config_(config),
        weights_(weights),
        device_(device),
        planes_(PlanesOf(precision)),
        max_slots_(max_slots),
        max_batch_(max_batch),
        copies_(CodecCopiesFor(max_batch)),
        packer_(memory),
        steps_(*steps) {}

  // Builds the list. kUnsupported for structures that the kernels do not cover.
  Status Build();
  // Returns the bytes of a slot's state.
  size_t state_bytes() const { return state_bytes_; }
  // Returns the number of steps up to the last of the pre-transformer.
  size_t latent_steps() const { return latent_steps_; }
  // Returns the number of steps of Codec::Begin().
  size_t early_steps() const { return early_steps_; }
  // Returns the number of earlier frames that samples depend on, besides those of the pre-transformer's attention.
  int SoundHistory() const;

 private:
  // The array between an operation and the next one, as the next one reads it: rows of a frame, padded channels, and
  // how many rows before the frame it looks back.
  struct Output {
    int rows = 1;
    int channels = 0;
    int look_back = 0;
    Planes planes = Planes::kF32;
    Snake snake = {};     // applied before the array is stored; none by default
    float* to = nullptr;  // where; null: NextOperand()
  };
  // Adds an operation that writes `output`; returns it as the next operation's input.
  Source Append(Step step, const Output& output);
  // Adds an operation without such an output.
  void Append(const Step& step) { steps_.push_back(step); }

  // Adds weights of a product and returns it without an epilogue, which the caller sets. `order`: instead of that of
  // the product's own kernel of warpgroups.
  GemmStep Gemm(const Dense& dense, int dilation, const Source& x, const WarpgroupOrder* order = nullptr);
  // Returns the geometry of a product with `rows` columns of a frame.
  GemmGeometry Geometry(int rows, int outputs, int taps, int channels, int dilation) const;
  // Returns true if kernels of warpgroups take part in the product that is added next.
  bool HasWarpgroups() const;
  bool WarpgroupsHaveUnit(const ResidualUnitWeights& unit, int dilation, int channels) const;
  // Returns true if residual units may be one kernel without warpgroups: from as many rows as keep second copies of
  // weights elsewhere, since units need one more array between steps.
  bool HasStagedUnits() const;
  // Divides the product's input by the hidden stream's root mean square.
  void NormalizeInput(GemmStep* gemm) const;

  // Builds the parts of the list, in order. Each takes its input and returns the next part's.
  Source Dequantization();
  Source PreTransformer(Source x);
  Source Layer(const TransformerLayerWeights& layer, const float* rotations, const Source& x);
  Source UpsampleStage(size_t index, const Source& x);
  Source FirstConvolution(const Source& x);
  Source DecoderBlock(size_t index, Source x);
  void LastConvolution(const Source& x);

  // Returns the format of the input of upsampling stage `index`; after the last stage, of the first convolution.
  Output UpsampleInput(size_t index) const;
  // Returns the format of the input of decoder block `index`; after the last block, of the last convolution.
  Output BlockInput(size_t index, int channels);
  // Returns the format of the input of residual unit `unit` of a block.
  Output UnitInput(const DecoderBlockWeights& block, size_t unit, int channels);

  Dense OutputProjection();
  // Returns the output projection and the first upsampling as one product.
  GemmStep ProjectAndUpsample(const Source& x);
  // Transposes weights [channels][1][taps] of a convolution of single channels to [taps][channels].
  const float* ByTap(const TensorView& weights, int channels);
  // Returns the next one of operands_, in turn. The one before it may still be read.
  void* NextOperand();
  // Allocates space in every slot's state.
  int64_t Remember(size_t bytes);
  Status CheckStructure() const;

  const CodecConfig& config_;
  const CodecWeights& weights_;
  const DeviceTraits& device_;
  const Planes planes_;  // of the operands of all products
  const int max_slots_, max_batch_;
  const CodecCopies copies_;
  WeightPacker packer_;
  std::vector<Step>& steps_;

  float* hidden_ = nullptr;    // F32 stream of the pre-transformer
  float* residual_ = nullptr;  // F32 residual stream of the current stage, after the pre-transformer
  // Inputs of the next operators: one is read, another one written. A residual unit's kernel, which needs warpgroups,
  // reads what the operator before the last has written: a third one.
  std::vector<void*> operands_;
  size_t next_operand_ = 0;
  size_t state_bytes_ = 0;
  size_t latent_steps_ = 0;
  size_t early_steps_ = 0;
  int rows_ = 1;  // per frame, at this point of the list
};

}  // namespace qtts::cuda::codec

#endif  // QTTS_CUDA_CODEC_STEPS_H_
