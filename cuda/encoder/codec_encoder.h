// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_ENCODER_CODEC_ENCODER_H_
#define QTTS_CUDA_ENCODER_CODEC_ENCODER_H_

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

// The speech tokenizer's encoder (spec 8) on the current device: a recording to codes, 12.5 frames a second. F32.
//
// The convolutions take a long recording in parts, each with as much of what precedes it as its outputs depend
// on, so that scratch memory stays bounded; the codes are the same, bit for bit.
//
// Owns its weights (F32) on the device; the device it was made on must be current in all calls. Calls wait for their
// work. Not thread-safe.
class CodecEncoder {
 public:
  // Rows (two per frame) per chunk of the convolutions.
  static constexpr int64_t kPartRows = 256;

  // Loads the weights, which are not needed afterwards. kResourceExhausted where the device has no room for them;
  // kUnsupported for codebooks that the kernels do not cover.
  static Result<std::unique_ptr<CodecEncoder>> Create(const CodecEncoderConfig& config,
                                                      const CodecEncoderWeights& weights, cudaStream_t stream);

  // Encodes pcm, 24 kHz, not empty, to codes [ceil(samples / samples_per_frame)][code_groups]. kInvalidArgument for
  // recordings longer than attention can take (7 minutes with the released structure).
  Result<std::vector<int32_t>> Encode(std::span<const float> pcm, Scratch* scratch, cudaStream_t stream) const;

  size_t device_bytes() const { return memory_.total(); }

 private:
  struct Stage {
    Layer residual1, residual2, strided;
    int stride = 1;
  };
  struct Block {
    const float* input_norm = nullptr;
    const float* input_norm_bias = nullptr;
    const float* post_norm = nullptr;
    const float* post_norm_bias = nullptr;
    Layer qkv, o, fc1, fc2;
    const float* attention_scale = nullptr;
    const float* mlp_scale = nullptr;
  };
  // Arrays of the convolutions: x of even and of odd stages, and the array between the two of a residual.
  struct PartArrays {
    float* x[2] = {};
    float* inner = nullptr;
  };

  CodecEncoder() = default;
  // Returns the maximum number of earlier rows that outputs of the convolutions depend on.
  int64_t LooksBack() const;
  // Convolves samples to rows of `hidden`, without the first `skip`.
  void ConvolvePart(const float* pcm, int64_t samples, int64_t skip, const PartArrays& arrays, float* hidden,
                    Queue* queue) const;
  // Runs the layers on x [rows][hidden], in place; `normed` [rows][hidden], `wide` [rows][the widest of a layer],
  // `attended` [rows][heads * head_dim].
  void Transform(int64_t rows, float* x, float* normed, float* wide, float* attended, Queue* queue) const;

  CodecEncoderConfig config_;
  Arena memory_;
  int64_t hop_ = 1;  // samples of a row
  Layer first_conv_, last_conv_;
  std::vector<Stage> stages_;
  std::vector<Block> layers_;
  const float* rope_speeds_ = nullptr;
  Layer downsample_, semantic_projection_, acoustic_projection_;
  WeightPacker::Codebooks codebooks_;
};

}  // namespace qtts::cuda::encoder

#endif  // QTTS_CUDA_ENCODER_CODEC_ENCODER_H_
