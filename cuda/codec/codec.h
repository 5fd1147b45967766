// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CODEC_CODEC_H_
#define QTTS_CUDA_CODEC_CODEC_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "checkpoint/weights.h"
#include "qtts/status.h"

namespace qtts::cuda {

enum class CodecPrecision {
  kFast,  // tensor cores; error of the samples over 100 dB below the signal, see CodecArithmetic
  kF32,   // F32 throughout, slow: for checking
};

// How kFast multiplies. Sums, biases, residuals, SnakeBeta, norms and softmax are F32 whatever these say; only
// the operands of matrix products are rounded: to F16 (11 bits), or to the sum of two F16 (22 bits), at the
// price of one more product of the same size for each operand that is. Measured SNR against F32 (bundled voice,
// whose weights are F16 / random F32 weights at the released size): neither split 58.8 / 60.4 dB, inputs 66.5 / 63.5,
// both 107 / 105. 60 dB is what must hold for any model, and one plane does not promise it: both are split by default.
struct CodecArithmetic {
  bool split_inputs = true;
  bool split_weights = false;

  // What kFast means for the layers up to `decoder.0`, and for the decoder blocks.
  static CodecArithmetic Early();
  static CodecArithmetic Late();
};

// Where sound is made: with the device to itself, or beside a kernel that keeps all processors busy and leaves
// some room on each, slower. The samples are the same.
enum class CodecRoom { kDevice, kBeside };

// The speech tokenizer's decoder (spec 7) on the current device: for each of up to max_batch streams at once,
// one frame of codes to one frame of samples. A stream's past (convolution histories, keys and values of the
// window, number of frames) lies on the device under its slot.
//
// What a stream gives depends on its own codes only: neither on the other rows of a batch nor on their
// number nor on its place among them, bit for bit, for one precision and device type.
//
// Calls enqueue work and return; they must be made on one stream, or on streams that are ordered by events.
// Not thread-safe.
class Codec {
 public:
  // Repacks the weights onto the current device, which must stay current in all calls; waits for that. The
  // weights are not needed afterwards. kUnsupported for structures that the kernels do not cover.
  static Result<std::unique_ptr<Codec>> Create(const CodecConfig& config, const CodecWeights& weights,
                                               CodecPrecision precision, int max_slots, int max_batch);
  // kFast with another arithmetic.
  static Result<std::unique_ptr<Codec>> CreateWith(const CodecConfig& config, const CodecWeights& weights,
                                                   const CodecArithmetic& early, const CodecArithmetic& late,
                                                   int max_slots, int max_batch);
  ~Codec();
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;

  int code_groups() const;
  int samples_per_frame() const;
  size_t device_bytes() const;  // weights, scratch and the slots' state so far

  // Makes `slot` a stream that has had no frames. The first time it may take memory, for some slots together:
  // kResourceExhausted where there is none.
  Status Reset(int slot, cudaStream_t stream);

  // One frame for each of n <= max_batch rows. Device arrays: slots[n], distinct, a value outside
  // [0, max_slots) or never Reset() = the row does nothing; codes [n][code_groups] (clamped to the codebook); pcm
  // [n][samples_per_frame], in [-1, 1]. Only enqueues kernels: may be captured in a graph, whose replays
  // read the arrays anew.
  Status Decode(int n, const int32_t* slots, const int32_t* codes, float* pcm, cudaStream_t stream);

  // The same in two parts, the second of which may run beside another kernel: what has many short steps and most of the
  // weights, and the sound of what the last Begin() had, of as many rows. Nothing else may lie between them.
  Status Begin(int n, const int32_t* slots, const int32_t* codes, cudaStream_t stream);
  Status Finish(int n, float* pcm, CodecRoom room, cudaStream_t stream);

  // Decode() for frames that nobody will hear: makes no samples, and leaves out what only samples need. Behind
  // sound_history() frames of Decode(), later frames are what they would be had Decode() had all of them, bit for
  // bit.
  Status Follow(int n, const int32_t* slots, const int32_t* codes, cudaStream_t stream);
  int sound_history() const;

  // A stream's past, to go on from it more than once: device memory of past_bytes() that the caller owns.
  size_t past_bytes() const;
  // Copies the past of `slot`, which was Reset() once, to `past`; or makes `slot` a stream that has it.
  Status Save(int slot, void* past, cudaStream_t stream) const;
  Status Restore(int slot, const void* past, cudaStream_t stream);

 private:
  struct Impl;
  explicit Codec(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_CODEC_CODEC_H_
