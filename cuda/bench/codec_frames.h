// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_BENCH_CODEC_FRAMES_H_
#define QTTS_CUDA_BENCH_CODEC_FRAMES_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "codec/codec.h"
#include "gpu/random_codec.h"
#include "qtts/status.h"
#include "runtime/device_memory.h"

// A codec, what its frames need, and their times.
namespace qtts {

// Device arrays that a frame of `n` streams reads and writes.
struct Arrays {
  cuda::DeviceMemory slots, codes, pcm;

  static Result<Arrays> Create(const cuda::Codec& codec, testing::RandomCodec* random, int n);
  // Enqueues a frame of the first `n` streams.
  Status Decode(cuda::Codec* codec, int n, cudaStream_t stream) const;
};

// Returns the ms of each of `launches` launches, which follow one another.
Result<std::vector<float>> TimesOf(int launches, cudaStream_t stream, const std::function<Status()>& launch);

// Returns a codec with all its slots in use.
Result<std::unique_ptr<cuda::Codec>> LoadCodec(const testing::RandomCodec& random, cuda::CodecPrecision precision,
                                               int most, cudaStream_t stream);

}  // namespace qtts

#endif  // QTTS_CUDA_BENCH_CODEC_FRAMES_H_
