// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_DEVICE_NUMBERS_H_
#define QTTS_CUDA_RUNTIME_DEVICE_NUMBERS_H_

#include <array>
#include <compare>
#include <cstdint>
#include <limits>

// Numbers measured on one card. They choose by time alone: between kernels that give the same bits, and how fast
// weights are asked for. A card may therefore have any table, and tables may change at any time. Numbers that decide
// bits must not: they stand where they are used, the same for every card (codec/gemm_cut.h).
//
// A table is made again on its card: kernels-bench prints the products' times, the lines through them and the table's;
// codec-bench --table the rows of codec/tile_table.cc. A pace is found by trying, with qtts-bench.
namespace qtts::cuda {

// Which kernels multiply kManyRows rows and more. kWarp and kWarpgroup give the same bits. kLibrary gives others, so it
// multiplies any number of rows. The environment may choose (QTTS_CUDA_PRODUCTS).
enum class ManyRowsProducts {
  kBest,  // kWarpgroup in BF16 where it can run, else kWarp
  kWarp,  // the matrix instruction of a warp: gemm/cluster.h, gemm/wide.h; and attention in splits for any number of
          // rows
  kWarpgroup,  // the matrix instruction of a warpgroup where it can run (gemm/tiles.h), else kWarp
  kLibrary,    // cuBLASLt (gemm/library.h)
};
inline constexpr int kManyRows = 64;

// The language model's products (ChooseShape() in gemm/gemm.cc).
struct ProductNumbers {
  // ns of a product of 2048 columns, over the number of blocks.
  struct Line {
    int64_t base = 0;
    int64_t per_block = 0;
  };

  int processors = 0;          // SMs of the card
  int64_t blocks_at_once = 0;  // of the shape for few rows
  int64_t quick_rows = 0;      // products of no more rows and columns, all blocks at once, need no clusters
  int64_t quick_columns = 0;
  int clusters_at_once = 0;  // of eight blocks
  Line wide16, wide32, wide64;
  ManyRowsProducts many_rows = ManyRowsProducts::kWarp;
  // By warpgroups, from kManyRows rows on: so many tiles of 128 by 128 and more are taken as such. Smaller tiles must
  // be at least small_tiles, half as many with more than kManyRows rows.
  int64_t large_tiles = 0, small_tiles = 0;
};

// The language model's attention (attention/attention.cu).
struct AttentionNumbers {
  int64_t blocks_at_once = 0;  // while there are no more, each query head has a block to itself
  // From kManyRows rows on a block or warp goes through a whole context. The same bits. Not with kWarp.
  bool whole_contexts = true;
};

// The language model's sampling (sample/sample.cu).
struct SamplingNumbers {
  // Up to so many rows get 1024 threads each, more get 256. The same bits.
  int64_t rows_of_many_threads = 0;
};

// How the persistent kernel streams weights, in units of 16 KiB (WeightPace in paths/persistent/frame_kernel.h).
struct PaceNumbers {
  int in_flight = 0;
  int ahead = 0;
};
struct PersistentNumbers {
  PaceNumbers narrow_talker, wide_talker, predictor;
};

// Measured kernels of the codec's products, by class of card (codec/tile_table.h). Products without a row are chosen by
// a rule (RuleTile()).
enum class CodecTable {
  kNone,
  kHopper,
  kWarps,  // cards without `wgmma`, whatever their numbers
};

// The codec's part of the device: eighths of the SMs (runtime/processor_part.h), and whether it has the priority of
// codes.
struct CodecShare {
  int eighths = 8;
  bool urgent = false;
  auto operator<=>(const CodecShare&) const = default;
};

struct CodecNumbers {
  CodecTable table = CodecTable::kNone;
  // The share while the next frame's codes are computed, whose small kernels would wait until the codec's tiles end.
  // Equal priority loses less time than making way, where there are many streams.
  struct StreamsShare {
    int streams = 0;  // of a frame, up to so many
    CodecShare share;
  };
  static constexpr int kMaxShares = 6;
  static constexpr int kAnyStreams = std::numeric_limits<int>::max();
  std::array<StreamsShare, kMaxShares> shares = {};  // ascending; the last one that is used is for any more streams
  // With the whole device, kernels of more than few_streams and at most some_streams streams are chosen as for
  // processors_of_some SMs; 0: all. Some are then left to codes.
  int few_streams = 0, some_streams = 0, processors_of_some = 0;

  CodecShare ShareOf(int streams) const;
};

struct DeviceNumbers {
  bool measured = false;  // on this type of card
  ProductNumbers products;
  AttentionNumbers attention;
  SamplingNumbers sampling;
  PersistentNumbers persistent;
  CodecNumbers codec;
};

// NVIDIA H200; of the H100, whose SMs are the same. 132 SMs.
inline constexpr DeviceNumbers kH200Numbers = {
    .measured = true,
    .products = {.processors = 132,
                 .blocks_at_once = 264,  // two on an SM
                 .quick_rows = 16,
                 .quick_columns = 2048,
                 .clusters_at_once = 16,
                 .wide16 = {-2200, 40},
                 .wide32 = {2000, 53},
                 .wide64 = {6300, 65},
                 .large_tiles = 96,
                 .small_tiles = 64},
    .attention = {.blocks_at_once = 128},
    // A block of 1024 threads has an SM to itself: 6.8 us for each turn of 132 rows, 3072 logits and top-k 50. With 256
    // threads 128 rows take 7.8 us, 256 rows 9.4, 1024 rows 21.2.
    .sampling = {.rows_of_many_threads = 132},
    // The wide talker is limited by bytes, and reading ahead is in its way: see
    // tests/bench/journal/gpu-few-voices.md.
    .persistent = {.narrow_talker = {1, 4}, .wide_talker = {2, 0}, .predictor = {1, 4}},
    // Up to eight streams have the persistent kernel.
    .codec = {.table = CodecTable::kHopper,
              .shares = {{{8, {8, false}},
                          {96, {4, false}},
                          {128, {5, false}},
                          {192, {5, true}},
                          {256, {6, true}},
                          {CodecNumbers::kAnyStreams, {8, true}}}},
              .few_streams = 8,
              .some_streams = 64,
              .processors_of_some = 99},
};

// Returns the table for the card with this name (cudaDeviceProp::name) and number of SMs. An unknown card gets the
// H200's, except for values that count its SMs or depend on its memory, so that no choice is far off. `processors` of
// any table are the card's own.
DeviceNumbers NumbersOf(const char* card, int processors);

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_DEVICE_NUMBERS_H_
