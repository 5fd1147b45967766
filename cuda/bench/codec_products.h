// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_BENCH_CODEC_PRODUCTS_H_
#define QTTS_CUDA_BENCH_CODEC_PRODUCTS_H_

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "codec/codec.h"
#include "codec/gemm.h"
#include "codec/steps.h"
#include "gpu/random_codec.h"
#include "runtime/arena.h"
#include "runtime/device_memory.h"
#include "runtime/device_numbers.h"

// The matrix products of the GPU codec one by one, and rows of codec/tile_table.cc in the making.
namespace qtts {

// A frame's products for `n` streams, and memory that they can be run on. Owned by whoever measures. Not thread-safe.
class Products {
 public:
  static constexpr double kNoBound = 1e12;

  // Makes the products of a codec for `most` streams.
  static Result<std::unique_ptr<Products>> Create(const testing::RandomCodec& random, cuda::CodecPrecision precision,
                                                  int most);

  // Makes the products those of `n` streams, with as many SMs as the codec gives them.
  void SetStreams(int n);

  // Returns the us of one of many runs of a product, each with weights that are not in the cache. A kernel that is far
  // from taking at most `bound` us is timed only roughly.
  Result<double> Time(const cuda::codec::GemmStep& product, const cuda::codec::GemmTile& tile, double bound,
                      cudaStream_t stream) const;
  // Returns the same of a residual unit in one kernel.
  Result<double> TimeUnit(const cuda::codec::GemmStep& first, const cuda::codec::GemmStep& second,
                          cudaStream_t stream) const;

  cuda::codec::DeviceTraits traits;
  std::vector<cuda::codec::GemmStep> list;

 private:
  Products() = default;
  // Returns the us of `launch`(weights of `bytes` bytes).
  Result<double> TimeRuns(size_t bytes, double bound, cudaStream_t stream,
                          const std::function<cudaError_t(const void*)>& launch) const;

  cuda::Arena memory_;
  cuda::DeviceMemory states_, cold_;
  cuda::CodecNumbers numbers_;
  int processors_ = 0;
};

using Tile = cuda::codec::GemmTile;

bool IsSame(const Tile& a, const Tile& b);
// Returns the tile as codec/tile_table.cc names it.
std::string NameOf(const Tile& tile);

// The fields that distinguish a table's rows, but for the planes.
using Kind = std::array<int, 5>;
Kind KindOf(const cuda::codec::GemmStep& product);

// The part of the products that is measured.
struct Selection {
  std::vector<int> streams;
  std::vector<int> rows;  // products with so many columns of a stream; empty: all
  bool chosen = false;    // only the kernel that the codec would take

  bool Has(const cuda::codec::GemmStep& product) const;
};

// A kernel of a product.
struct TimedTile {
  Tile tile;
  double us = Products::kNoBound;
};

// Times all kernels of a product, those that take far longer than others only roughly. Returns the fastest first.
Result<std::vector<TimedTile>> TimeTiles(const Products& products, const cuda::codec::GemmStep& product,
                                         cudaStream_t stream);

// Returns the product behind the `at`-th if the two could be one kernel, else null.
const cuda::codec::GemmStep* SecondOfUnit(const Products& products, size_t at);

// A row of the table in the making, for ascending numbers of streams.
struct Row {
  const cuda::codec::GemmStep* product = nullptr;
  std::vector<std::pair<int, Tile>> tiles;  // up to so many streams
  int unit_streams = 0;

  void Add(int streams, const Tile& tile);
  void AddUnit(int streams, bool is_unit);
  void Print() const;
};

}  // namespace qtts

#endif  // QTTS_CUDA_BENCH_CODEC_PRODUCTS_H_
