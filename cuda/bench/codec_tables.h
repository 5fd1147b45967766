// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_BENCH_CODEC_TABLES_H_
#define QTTS_CUDA_BENCH_CODEC_TABLES_H_

#include <cuda_runtime.h>

#include "codec/codec.h"
#include "codec_products.h"
#include "gpu/random_codec.h"
#include "qtts/status.h"

// Tables of the codec's kernels, printed while they are measured.
namespace qtts {

// Prints the time of each product in each kernel that can take it.
Status PrintTiles(const testing::RandomCodec& random, cuda::CodecPrecision precision, const Selection& selection,
                  cudaStream_t stream);

// Prints the rows of one precision in the form of codec/tile_table.cc, each as soon as it is measured: of products
// whose weights lie there once, by a codec for fewer streams than keep all weights twice, and of those whose weights
// lie there twice. Where no weights are kept twice, there are only the former.
Status PrintTable(const testing::RandomCodec& random, cuda::CodecPrecision precision, const Selection& selection,
                  cudaStream_t stream);

// Prints the rows of a codec for `most` streams with which whole frames are fastest, after a search for each number of
// streams.
Status PrintWholeTable(testing::RandomCodec* random, cuda::CodecPrecision precision, int most,
                       const Selection& selection, cudaStream_t stream);

}  // namespace qtts

#endif  // QTTS_CUDA_BENCH_CODEC_TABLES_H_
