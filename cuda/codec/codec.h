// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CODEC_CODEC_H_
#define QTTS_CUDA_CODEC_CODEC_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "checkpoint/weights.h"
#include "qtts/status.h"

namespace qtts::cuda {
namespace codec {
struct ProductTiles;
}  // namespace codec

// How matrix products multiply, in all layers alike. Sums, biases, residuals, SnakeBeta, norms and softmax are F32 in
// each; only the operands of products are rounded. SNR of the samples against F32, measured with the bundled voice,
// whose weights are F16, and with random F32 weights at the released size. 60 dB must hold for any model.
enum class CodecPrecision {
  kExact,  // both operands as the sum of two F16 (22 bits), three products: 107 and 105 dB
  kFast,   // both operands as F16 (11 bits), one product: 58.8 and 60.4 dB
  kF32,    // F32 throughout, slow: for checking
};

// A frame's part of the device, by which its kernels are chosen. The samples are the same.
struct CodecRoom {
  int processors = 0;   // SMs that the kernels are confined to (runtime/processor_part.h); 0: all
  bool beside = false;  // another kernel occupies all SMs and leaves some shared memory on each; only of Finish()
};

// Layers whose weights are kept once more, in the order of warpgroups, on devices that have these: where batches have
// columns enough for such products to pay.
enum class CodecCopies { kNone, kDecoderBlocks, kAll };
// Returns the layers for batches of up to `max_batch` rows.
CodecCopies CodecCopiesFor(int max_batch);

// The speech tokenizer's decoder (spec 7) on the current device: for each of up to max_batch streams at once,
// one frame of codes to one frame of samples. A stream's past (convolution histories, keys and values of the
// window, number of frames) lies on the device under its slot.
//
// A stream's samples depend on its own codes only, bit for bit, for one precision and device type: not on the other
// rows of a batch, on their number, or on its place among them.
//
// Calls enqueue work and return; they must be made on one stream, or on streams that are ordered by events.
// Not thread-safe.
class Codec {
 public:
  // Packs the weights on the current device, which must be current in all calls, and waits for it. The weights may be
  // freed afterwards. kUnsupported for structures that the kernels do not cover.
  static Result<std::unique_ptr<Codec>> Create(const CodecConfig& config, const CodecWeights& weights,
                                               CodecPrecision precision, int max_slots, int max_batch);
  ~Codec();
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;

  int code_groups() const;
  int samples_per_frame() const;
  size_t device_bytes() const;  // weights, scratch and the slots' state so far
  size_t frame_bytes() const;   // of weights that a frame of one stream reads

  // Resets `slot` to a stream without frames. The first call for a slot may allocate memory for a group of slots:
  // kResourceExhausted if there is none.
  Status Reset(int slot, cudaStream_t stream);

  // Decodes one frame for each of n <= max_batch rows. Device arrays: slots[n], distinct, a value outside [0,
  // max_slots) or never Reset() = the row does nothing; codes [n][code_groups] (clamped to the codebook); pcm
  // [n][samples_per_frame], in [-1, 1]. Only enqueues kernels: may be captured in a graph, whose replays read the
  // arrays anew.
  Status Decode(int n, const int32_t* slots, const int32_t* codes, float* pcm, cudaStream_t stream);

  // Splits Decode() in two. Begin() has many short steps and reads most of the weights; the second part makes the sound
  // of the last Begin(), for as many rows, and may run beside another kernel. No other call may come between the two.
  Status Begin(int n, const int32_t* slots, const int32_t* codes, CodecRoom room, cudaStream_t stream);
  Status Finish(int n, float* pcm, CodecRoom room, cudaStream_t stream);

  // Decodes without samples: leaves out everything that only samples need. After sound_history() further frames of
  // Decode(), later frames equal those of Decode() for all frames, bit for bit.
  Status DecodeWithoutSamples(int n, const int32_t* slots, const int32_t* codes, cudaStream_t stream);
  int sound_history() const;

  // Takes the products' kernels from these rows (codec/tile_table.h) instead of the card's table from now on: for a
  // benchmark that looks for a better table. The rows must outlive the codec's calls. The samples are the same.
  void UseTiles(std::span<const codec::ProductTiles> table);

  // Saves and restores a stream's past, to continue from it more than once: past_bytes() of device memory, owned by the
  // caller.
  size_t past_bytes() const;
  // Copies the past of `slot` (after Reset()) to `past`, or restores `slot` from it.
  Status Save(int slot, void* past, cudaStream_t stream) const;
  Status Restore(int slot, const void* past, cudaStream_t stream);

 private:
  struct Impl;
  explicit Codec(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_CODEC_CODEC_H_
