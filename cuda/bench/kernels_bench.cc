// SPDX-License-Identifier: LGPL-2.1-or-later
// kernels-bench: the talker's products and attention for several rows, in each possible shape, and the lines through
// the times of the wide shapes: what ProductNumbers and AttentionNumbers (runtime/device_numbers.h) are made of.
// kernels-bench many: products, attention and sampling of 64 to 2,048 rows, today's kernels beside those that are not
// the default yet, in under a minute. kernels-bench attention: that part alone. kernels-bench scores: the two steps of
// the text's scores.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "attention/attention.h"
#include "attention/text_scores.h"
#include "gemm/cublas_lt.h"
#include "gemm/gemm.h"
#include "gemm/product.h"
#include "runtime/device.h"
#include "runtime/device_memory.h"
#include "runtime/device_table.h"
#include "sample/sample.h"

namespace {

using namespace qtts;        // NOLINT: a program of one file
using namespace qtts::cuda;  // NOLINT

// Products in a graph, each with weights of its own: together they do not fit into L2.
constexpr int kLayers = 28;
constexpr int kReplays = 20;

// Microseconds of one of kLayers dependent calls of `enqueue`(launcher, layer).
Result<double> Time(cudaStream_t stream, const DeviceNumbers& numbers,
                    const std::function<void(const Launcher&, int)>& enqueue) {
  const DeviceDescription* device = nullptr;
  QTTS_RETURN_IF_CUDA_ERROR(DescribeDevice(&device), "asking for the device");
  QTTS_ASSIGN_OR_RETURN(const Graph graph, Graph::Capture(stream, [&] {
                          const Launcher launch(stream, &numbers, device->CanOverlap());
                          for (int layer = 0; layer < kLayers; ++layer) enqueue(launch, layer);
                          return CudaStatus(launch.error, "a product");
                        }));
  QTTS_ASSIGN_OR_RETURN(const Event begin, Event::Create(true));
  QTTS_ASSIGN_OR_RETURN(const Event end, Event::Create(true));
  std::vector<float> times;
  for (int i = 0; i < kReplays; ++i) {
    QTTS_RETURN_IF_CUDA_ERROR(cudaEventRecord(begin.get(), stream), "timing");
    QTTS_RETURN_IF_ERROR(graph.Launch(stream));
    QTTS_RETURN_IF_CUDA_ERROR(cudaEventRecord(end.get(), stream), "timing");
    QTTS_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(end.get()), "timing");
    float ms = 0;
    QTTS_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&ms, begin.get(), end.get()), "timing");
    times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  return times[kReplays / 2] * 1e3 / kLayers;
}

struct Product {
  const char* name;
  GemmKind kind;
  int outputs, columns;
};

Matrix MatrixOf(const Product& product) {
  Matrix matrix;
  matrix.kind = product.kind;
  matrix.outputs = product.outputs;
  matrix.columns = product.columns;
  return matrix;
}

// Without a shape and memory for normed rows.
GemmRows RowsOf(const Product& product, int rows, const DeviceMemory& x, const DeviceMemory& y,
                const DeviceMemory& norm) {
  GemmRows r;
  r.x = x.data();
  r.x_stride = product.columns;
  r.y = y.data();
  r.y_stride = product.outputs;
  r.rows = rows;
  r.norm = norm.as<const float>();
  r.eps = 1e-6F;
  return r;
}

// `weights`: kLayers matrices, one behind the other.
Result<double> TimeGemm(cudaStream_t stream, const DeviceNumbers& numbers, const Matrix& matrix,
                        const DeviceMemory& weights, const GemmRows& rows) {
  return Time(stream, numbers, [&](const Launcher& launch, int layer) {
    Matrix of_layer = matrix;
    of_layer.data = weights.as<char>() + static_cast<size_t>(layer) * matrix.bytes(Precision::kBF16);
    of_layer.swizzled = of_layer.data;  // in whatever order, they are as many bytes
    Gemm(launch, Precision::kBF16, of_layer, rows);
  });
}

// ns of products of 2048 columns over their number of blocks; the line of least squares goes through them.
class Points {
 public:
  void Add(double blocks, double ns) {
    ++count_;
    x_ += blocks;
    y_ += ns;
    xx_ += blocks * blocks;
    xy_ += blocks * ns;
  }
  double per_block() const { return (count_ * xy_ - x_ * y_) / (count_ * xx_ - x_ * x_); }
  double base() const { return (y_ - per_block() * x_) / count_; }

 private:
  double count_ = 0, x_ = 0, y_ = 0, xx_ = 0, xy_ = 0;
};

// A wide shape, its blocks' rows, its line in the table, and what was measured.
struct WideShape {
  GemmShape shape;
  int rows;
  ProductNumbers::Line line;
  Points points;
};

Status Products(cudaStream_t stream, const DeviceNumbers& numbers) {
  constexpr Product kProducts[] = {
      {"0.6B qkv", GemmKind::kNormStore, 4096, 1024},      {"0.6B o", GemmKind::kAdd, 1024, 2048},
      {"0.6B gate, up", GemmKind::kNormGated, 3072, 1024}, {"0.6B down", GemmKind::kAdd, 1024, 3072},
      {"1.7B qkv", GemmKind::kNormStore, 4096, 2048},      {"1.7B o", GemmKind::kAdd, 2048, 2048},
      {"1.7B gate, up", GemmKind::kNormGated, 6144, 2048}, {"1.7B down", GemmKind::kAdd, 2048, 6144},
  };
  constexpr GemmShape kShapes[] = {GemmShape::kFew, GemmShape::kWide16, GemmShape::kWide32, GemmShape::kWide64,
                                   GemmShape::kCluster};
  constexpr int kMostRows = 128;
  WideShape wide_shapes[] = {{GemmShape::kWide16, 16, numbers.products.wide16, {}},
                             {GemmShape::kWide32, 32, numbers.products.wide32, {}},
                             {GemmShape::kWide64, 64, numbers.products.wide64, {}}};
  std::printf("us a product (* = chosen)\n%-14s %5s", "", "rows");
  for (const GemmShape shape : kShapes) std::printf(" %9s", gemm::ProductOf(shape).name);
  std::printf("\n");
  for (const Product& product : kProducts) {
    const Matrix matrix = MatrixOf(product);
    const size_t bytes = matrix.bytes(Precision::kBF16);
    QTTS_ASSIGN_OR_RETURN(const DeviceMemory weights, DeviceMemory::AllocateZeroed(bytes * kLayers));
    QTTS_ASSIGN_OR_RETURN(const DeviceMemory x, DeviceMemory::AllocateZeroed(kMostRows * 8192 * 4));
    QTTS_ASSIGN_OR_RETURN(const DeviceMemory y, DeviceMemory::AllocateZeroed(kMostRows * 8192 * 4));
    QTTS_ASSIGN_OR_RETURN(const DeviceMemory normed, DeviceMemory::AllocateZeroed(kMostRows * 8192 * 2));
    QTTS_ASSIGN_OR_RETURN(const DeviceMemory factors, DeviceMemory::AllocateZeroed(kMostRows * 4));
    QTTS_ASSIGN_OR_RETURN(const DeviceMemory norm, DeviceMemory::AllocateZeroed(8192 * 4));
    for (const int rows : {8, 16, 24, 32, 40, 64, 128}) {
      GemmRows r = RowsOf(product, rows, x, y, norm);
      r.normed = {normed.data(), factors.as<float>()};
      std::printf("%-14s %5d", product.name, rows);
      for (const GemmShape shape : kShapes) {
        r.shape = shape;
        if (!CanRun(shape, matrix, r, numbers.products)) {
          std::printf(" %9s", "-");
          continue;
        }
        QTTS_ASSIGN_OR_RETURN(const double us, TimeGemm(stream, numbers, matrix, weights, r));
        std::printf(" %8.2f%s", us, shape == ChooseShape(matrix, r, numbers.products) ? "*" : " ");
        for (WideShape& wide : wide_shapes) {
          if (wide.shape != shape) continue;
          wide.points.Add(static_cast<double>(WideBlocks(matrix, rows, wide.rows)), us * 1e3 * 2048 / product.columns);
        }
      }
      std::printf("\n");
    }
  }
  std::printf("ns of 2048 columns, the line through the above (and the table's)\n");
  for (const WideShape& wide : wide_shapes) {
    std::printf("wide %d: %.0f + %.1f a block (%lld + %lld)\n", wide.rows, wide.points.base(), wide.points.per_block(),
                static_cast<long long>(wide.line.base), static_cast<long long>(wide.line.per_block));
  }
  return Status::Ok();
}

// Weights of 8 bits beside BF16: read from their codes, and from their values in scratch memory.
Status Int8Products(cudaStream_t stream, const DeviceNumbers& numbers) {
  constexpr Product kProducts[] = {
      {"0.6B qkv", GemmKind::kNormStore, 4096, 1024},      {"0.6B o", GemmKind::kAdd, 1024, 2048},
      {"0.6B gate, up", GemmKind::kNormGated, 3072, 1024}, {"0.6B down", GemmKind::kAdd, 1024, 3072},
      {"1.7B qkv", GemmKind::kNormStore, 4096, 2048},      {"1.7B o", GemmKind::kAdd, 2048, 2048},
      {"1.7B gate, up", GemmKind::kNormGated, 6144, 2048}, {"1.7B down", GemmKind::kAdd, 2048, 6144},
  };
  constexpr int kMostRows = 64;
  std::printf("us a product (* = chosen)\n%-14s %5s %9s %9s %9s\n", "", "rows", "bf16", "codes", "unpacked");
  for (const Product& product : kProducts) {
    const Matrix plain = MatrixOf(product);
    Matrix int8 = plain;
    int8.form = WeightForm::kInt8;
    const size_t bytes = plain.bytes(Precision::kBF16);
    QTTS_ASSIGN_OR_RETURN(const DeviceMemory weights, DeviceMemory::AllocateZeroed(bytes * kLayers));
    QTTS_ASSIGN_OR_RETURN(const DeviceMemory unpacked, DeviceMemory::AllocateZeroed(bytes));
    QTTS_ASSIGN_OR_RETURN(const DeviceMemory x, DeviceMemory::AllocateZeroed(kMostRows * 8192 * 4));
    QTTS_ASSIGN_OR_RETURN(const DeviceMemory y, DeviceMemory::AllocateZeroed(kMostRows * 8192 * 4));
    QTTS_ASSIGN_OR_RETURN(const DeviceMemory normed, DeviceMemory::AllocateZeroed(kMostRows * 8192 * 2));
    QTTS_ASSIGN_OR_RETURN(const DeviceMemory factors, DeviceMemory::AllocateZeroed(kMostRows * 4));
    QTTS_ASSIGN_OR_RETURN(const DeviceMemory norm, DeviceMemory::AllocateZeroed(8192 * 4));
    const auto time = [&](const Matrix& matrix, const GemmRows& rows) {
      return Time(stream, numbers, [&](const Launcher& launch, int layer) {
        Matrix of_layer = matrix;
        of_layer.data = weights.as<char>() + static_cast<size_t>(layer) * matrix.bytes(Precision::kBF16);
        Gemm(launch, Precision::kBF16, of_layer, rows);
      });
    };
    for (const int rows : {1, 2, 4, 8, 16, 24, 32, 48, 64}) {
      GemmRows r = RowsOf(product, rows, x, y, norm);
      r.normed = {normed.data(), factors.as<float>()};
      QTTS_ASSIGN_OR_RETURN(const double bf16, time(plain, r));
      QTTS_ASSIGN_OR_RETURN(const double codes, time(int8, r));
      int8.unpacked = unpacked.data();
      const bool reads_codes = ReadsInt8(int8, r);
      r.shape = ChooseShape(plain, r, numbers.products);
      if (r.shape == GemmShape::kFew) r.shape = GemmShape::kWide16;
      QTTS_ASSIGN_OR_RETURN(const double values, time(int8, r));
      int8.unpacked = nullptr;
      std::printf("%-14s %5d %8.2f  %8.2f%s %8.2f%s\n", product.name, rows, bf16, codes, reads_codes ? "*" : " ",
                  values, reads_codes ? " " : "*");
    }
  }
  return Status::Ok();
}

// A prompt's rows, all of one sequence, after as many as there are.
Status Attention(cudaStream_t stream, const DeviceNumbers& numbers) {
  TransformerConfig config;
  config.num_layers = kLayers;
  config.num_heads = 16;
  config.num_kv_heads = 8;
  config.head_dim = 128;
  config.rms_norm_eps = 1e-6F;
  constexpr int kMostRows = 64;
  const size_t page_bytes = size_t{kPagePositions} * kLayers * 2 * 8 * 128 * 2;
  QTTS_ASSIGN_OR_RETURN(const DeviceMemory page, DeviceMemory::AllocateZeroed(page_bytes));
  QTTS_ASSIGN_OR_RETURN(const DeviceMemory table, DeviceMemory::AllocateZeroed(sizeof(void*)));
  QTTS_ASSIGN_OR_RETURN(const DeviceMemory slot, DeviceMemory::AllocateZeroed(sizeof(int)));
  QTTS_ASSIGN_OR_RETURN(const DeviceMemory qkv, DeviceMemory::AllocateZeroed(size_t{kMostRows} * 4096 * 4));
  QTTS_ASSIGN_OR_RETURN(const DeviceMemory y, DeviceMemory::AllocateZeroed(size_t{kMostRows} * 2048 * 2));
  QTTS_ASSIGN_OR_RETURN(const DeviceMemory vectors, DeviceMemory::AllocateZeroed(128 * 4));
  QTTS_ASSIGN_OR_RETURN(const DeviceMemory partial,
                        DeviceMemory::AllocateZeroed(PartialElements(config, kMostRows, 2) * 4));
  QTTS_ASSIGN_OR_RETURN(const DeviceMemory tickets,
                        DeviceMemory::AllocateZeroed(TicketElements(config, kMostRows) * 4));
  void* const address = page.data();
  QTTS_RETURN_IF_CUDA_ERROR(cudaMemcpy(table.data(), &address, sizeof(address), cudaMemcpyHostToDevice), "a table");
  const auto* const ones = vectors.as<const float>();
  std::printf("us an attention of 16 heads of 128\n%5s %9s %9s\n", "rows", "append", "attend");
  for (const int rows : {1, 8, 16, 32, 64}) {
    SequenceRows sequence;
    sequence.slots = slot.as<const int>();
    sequence.first_position = 20;
    sequence.per_sequence = rows;
    sequence.appended = rows > 1;
    sequence.rows = rows;
    const KeyValuePages pages = {table.as<void*>(), 1, kPagePositions};
    const auto layer_of = [&](int layer) { return AttentionLayer{layer, ones, ones, ones}; };
    double append = 0;
    if (rows > 1) {
      QTTS_ASSIGN_OR_RETURN(append, Time(stream, numbers, [&](const Launcher& launch, int layer) {
                              AppendKeyValues(launch, Precision::kBF16, config, layer_of(layer), sequence, pages,
                                              qkv.as<const float>());
                            }));
    }
    QTTS_ASSIGN_OR_RETURN(const double attend, Time(stream, numbers, [&](const Launcher& launch, int layer) {
                            Attend(launch, Precision::kBF16, config, layer_of(layer), sequence, pages,
                                   {partial.as<float>(), tickets.as<unsigned>()}, 2, qkv.as<const float>(),
                                   {y.data(), 2048}, nullptr);
                          }));
    std::printf("%5d %9.2f %9.2f\n", rows, append, attend);
  }
  return Status::Ok();
}

constexpr int kManyRowsList[] = {64, 96, 128, 256, 512, 1024, 2048};
constexpr int64_t kMostManyRows = 2048;
constexpr int64_t kLikelyRows = 256;  // for which the library chooses its algorithms

// Memory of random numbers between 2^-7 and 2 and their negatives, as BF16 and as F32: zeros would cost less power.
Result<DeviceMemory> RandomMemory(size_t bytes) {
  static const std::vector<uint32_t> block = [] {
    std::vector<uint32_t> words(size_t{1} << 22);
    uint32_t state = 1;
    for (uint32_t& word : words) {
      word = 0;
      for (int half = 0; half < 2; ++half) {
        state = state * 1664525U + 1013904223U;
        word = word << 16 | (state >> 31 << 15) | (0x3C00U + (state >> 12 & 0x3FFU));
      }
    }
    return words;
  }();
  QTTS_ASSIGN_OR_RETURN(DeviceMemory memory, DeviceMemory::Allocate(bytes));
  const size_t block_bytes = block.size() * sizeof(block[0]);
  for (size_t at = 0; at < bytes; at += block_bytes) {
    QTTS_RETURN_IF_CUDA_ERROR(
        cudaMemcpy(memory.as<char>() + at, block.data(), std::min(block_bytes, bytes - at), cudaMemcpyHostToDevice),
        "filling memory");
  }
  return memory;
}

// Says which columns of the table of many rows stay empty on this card.
Status PrintMissingColumns() {
  const DeviceDescription* device = nullptr;
  QTTS_RETURN_IF_CUDA_ERROR(DescribeDevice(&device), "asking for the device");
  if (!device->CanRunClusters()) std::printf("no column cluster: the card or this build has no clusters\n");
  if (!HasWarpgroupProducts()) std::printf("no columns tiles: the card or this build has no wgmma\n");
  return Status::Ok();
}

Status ManyProducts(cudaStream_t stream, const DeviceNumbers& numbers) {
  constexpr Product kProducts[] = {
      {"0.6B qkv", GemmKind::kNormStore, 4096, 1024},
      {"0.6B o", GemmKind::kAdd, 1024, 2048},
      {"0.6B gate, up", GemmKind::kNormGated, 3072, 1024},
      {"0.6B down", GemmKind::kAdd, 1024, 3072},
      {"0.6B head", GemmKind::kNormStore, 2048, 1024},
      {"1.7B qkv", GemmKind::kNormStore, 4096, 2048},
      {"1.7B o", GemmKind::kAdd, 2048, 2048},
      {"1.7B gate, up", GemmKind::kNormGated, 6144, 2048},
      {"1.7B down", GemmKind::kAdd, 2048, 6144},
  };
  constexpr GemmShape kShapes[] = {GemmShape::kBest, GemmShape::kCluster, GemmShape::kTiles128, GemmShape::kTiles64};
  ProductNumbers by_tiles = numbers.products;
  by_tiles.many_rows = ManyRowsProducts::kWarpgroup;
  const auto name_of = [](GemmShape shape) { return shape == GemmShape::kBest ? "own" : gemm::ProductOf(shape).name; };
  const Result<std::unique_ptr<CublasLt>> library = CublasLt::Open();
  if (!library.ok()) std::printf("no column lt: %s\n", library.status().message().c_str());
  QTTS_RETURN_IF_ERROR(PrintMissingColumns());
  std::printf(
      "us a product of many rows, with its norm or copy of rows (* = chosen with wgmma; own: without); lt: cuBLASLt's,"
      " the product alone\n");
  std::printf("%-14s %5s", "", "rows");
  for (const GemmShape shape : kShapes) std::printf(" %9s", name_of(shape));
  std::printf(" %9s (TFLOP/s: own, fastest)\n", "lt");
  for (const Product& product : kProducts) {
    Matrix matrix = MatrixOf(product);
    const size_t bytes = matrix.bytes(Precision::kBF16);
    constexpr auto kRows = static_cast<size_t>(kMostManyRows);
    QTTS_ASSIGN_OR_RETURN(const DeviceMemory weights, RandomMemory(bytes * kLayers));
    matrix.swizzled = weights.data();
    QTTS_ASSIGN_OR_RETURN(const DeviceMemory x, RandomMemory(kRows * static_cast<size_t>(product.columns) * 4));
    QTTS_ASSIGN_OR_RETURN(const DeviceMemory y, RandomMemory(kRows * static_cast<size_t>(product.outputs) * 4));
    QTTS_ASSIGN_OR_RETURN(const DeviceMemory normed, RandomMemory(kRows * static_cast<size_t>(product.columns) * 2));
    QTTS_ASSIGN_OR_RETURN(const DeviceMemory factors, RandomMemory(kRows * 4));
    QTTS_ASSIGN_OR_RETURN(const DeviceMemory norm, RandomMemory(static_cast<size_t>(product.columns) * 4));
    const int weight_rows = matrix.weight_rows();
    QTTS_ASSIGN_OR_RETURN(const DeviceMemory lt_y,
                          DeviceMemory::Allocate(kRows * static_cast<size_t>(weight_rows) * sizeof(float)));
    std::unique_ptr<LibraryProduct> lt;
    if (library.ok()) {
      auto pinned = (*library)->Pin(kLikelyRows, kMostManyRows, weight_rows, product.columns, weights.data(), x.data(),
                                    lt_y.as<float>());
      if (pinned.ok()) {
        lt = std::move(*pinned);
        std::printf("%-14s lt: %s\n", product.name, lt->algorithm().c_str());
      } else {
        std::printf("%-14s lt: %s\n", product.name, pinned.status().message().c_str());
      }
    }
    for (const int rows : kManyRowsList) {
      GemmRows r = RowsOf(product, rows, x, y, norm);
      r.normed = {normed.data(), factors.as<float>(), product.columns};
      std::printf("%-14s %5d", product.name, rows);
      double own = 0, least = 0;
      for (const GemmShape shape : kShapes) {
        r.shape = shape;
        const bool tiles = shape >= GemmShape::kTiles128;
        r.x_swizzled = tiles && product.kind == GemmKind::kAdd;
        r.y_swizzled = tiles && product.kind == GemmKind::kNormGated;
        if (!CanRun(shape, matrix, r, numbers.products)) {
          std::printf(" %9s", "-");
          continue;
        }
        QTTS_ASSIGN_OR_RETURN(const double us, TimeGemm(stream, numbers, matrix, weights, r));
        if (shape == GemmShape::kBest) own = us;
        least = least == 0 ? us : std::min(least, us);
        std::printf(" %8.2f%s", us, shape == ChooseShape(matrix, r, by_tiles) ? "*" : " ");
        std::fflush(stdout);
      }
      if (lt == nullptr) {
        std::printf(" %9s", "-");
      } else {
        Status status;
        QTTS_ASSIGN_OR_RETURN(const double us, Time(stream, numbers, [&](const Launcher& launch, int layer) {
                                const Status run =
                                    lt->Run(rows, weights.as<char>() + static_cast<size_t>(layer) * bytes, x.data(),
                                            product.columns, lt_y.as<float>(), weight_rows, false, launch.stream);
                                if (status.ok()) status = run;
                              }));
        QTTS_RETURN_IF_ERROR(status);
        std::printf(" %9.2f", us);
      }
      const double operations = 2e-6 * rows * product.columns * weight_rows;
      std::printf(" (%.0f, %.0f)\n", operations / own, operations / least);
    }
  }
  return Status::Ok();
}

// Bytes that the device's memory moves in a us.
Result<double> PeakBandwidth() {
  const DeviceDescription* device = nullptr;
  QTTS_RETURN_IF_CUDA_ERROR(DescribeDevice(&device), "asking for the device");
  return 1e-6 * device->bandwidth;
}

// Returns the attention of the released models, whose cache has so many layers.
TransformerConfig ReleasedAttention(int layers) {
  TransformerConfig config;
  config.num_layers = layers;
  config.num_heads = 16;
  config.num_kv_heads = 8;
  config.head_dim = 128;
  config.rms_norm_eps = 1e-6F;
  return config;
}

// A row for each sequence: the talker's contexts, and the predictor's, in pages of 16. By splits, by the kernels for
// any shape, which a window of more than the context asks for, and by the kernels for pairs of heads.
Status ManyAttention(cudaStream_t stream, const DeviceNumbers& numbers) {
  constexpr int kCachedLayers = 4;
  const TransformerConfig config = ReleasedAttention(kCachedLayers);
  TransformerConfig windowed = config;
  windowed.sliding_window = 1 << 20;
  DeviceNumbers whole = numbers, cut = numbers;
  whole.attention.whole_contexts = true;
  cut.attention.whole_contexts = false;
  QTTS_ASSIGN_OR_RETURN(const double bytes_per_us, PeakBandwidth());
  constexpr auto kRows = static_cast<size_t>(kMostManyRows);
  QTTS_ASSIGN_OR_RETURN(const DeviceMemory qkv, RandomMemory(kRows * 4096 * 4));
  QTTS_ASSIGN_OR_RETURN(const DeviceMemory y, DeviceMemory::AllocateZeroed(kRows * 2048 * 2));
  QTTS_ASSIGN_OR_RETURN(const DeviceMemory vectors, RandomMemory(128 * 4));
  const auto* const norms = vectors.as<const float>();
  std::printf(
      "us an attention of 16 heads of 128, a row for each sequence; bytes: what keys and values take at least\n");
  std::printf("%9s %5s %9s %9s %9s %9s %9s\n", "context", "rows", "splits", "any shape", "pairs", "TB/s", "bytes");
  struct Case {
    int context, page_positions;
    int spread;  // contexts of `spread` lengths around `context`
  };
  for (const auto& [context, page_positions, spread] :
       {Case{2, 16, 1}, Case{9, 16, 1}, Case{16, 16, 1}, Case{128, kPagePositions, 1}, Case{135, kPagePositions, 1},
        Case{135, kPagePositions, 241}, Case{512, kPagePositions, 1}, Case{1100, kPagePositions, 1}}) {
    const int longest = context + spread / 2;
    const int pages_of_row = (longest + page_positions - 1) / page_positions;
    const size_t page_bytes = static_cast<size_t>(page_positions) * kCachedLayers * 2 * 8 * 128 * 2;
    for (const int rows : kManyRowsList) {
      const auto pages = static_cast<size_t>(rows) * static_cast<size_t>(pages_of_row);
      size_t free = 0, total = 0;
      QTTS_RETURN_IF_CUDA_ERROR(cudaMemGetInfo(&free, &total), "asking for memory");
      if (pages * page_bytes > free / 2) continue;
      QTTS_ASSIGN_OR_RETURN(const DeviceMemory cache, DeviceMemory::AllocateZeroed(pages * page_bytes));
      std::vector<void*> addresses;
      for (size_t i = 0; i < pages; ++i) addresses.push_back(cache.as<char>() + i * page_bytes);
      QTTS_ASSIGN_OR_RETURN(const DeviceMemory table, DeviceMemory::Allocate(pages * sizeof(void*)));
      QTTS_RETURN_IF_CUDA_ERROR(
          cudaMemcpy(table.data(), addresses.data(), pages * sizeof(void*), cudaMemcpyHostToDevice), "a table");
      std::vector<int> positions;
      double bytes = 0;
      for (int i = 0; i < rows; ++i) {
        positions.push_back(context - spread / 2 + i * 97 % spread - 1);
        bytes += 2 * 8 * 128 * 2 * static_cast<double>(positions.back() + 1);
      }
      QTTS_ASSIGN_OR_RETURN(const DeviceMemory device_positions,
                            DeviceMemory::Allocate(positions.size() * sizeof(int)));
      QTTS_RETURN_IF_CUDA_ERROR(
          cudaMemcpy(device_positions.data(), positions.data(), positions.size() * sizeof(int), cudaMemcpyHostToDevice),
          "positions");
      const int splits = SplitsFor(config, longest);
      QTTS_ASSIGN_OR_RETURN(const DeviceMemory partial,
                            DeviceMemory::AllocateZeroed(PartialElements(config, rows, splits) * 4));
      QTTS_ASSIGN_OR_RETURN(const DeviceMemory tickets, DeviceMemory::AllocateZeroed(TicketElements(config, rows) * 4));
      SequenceRows sequence;
      sequence.positions = device_positions.as<const int>();
      sequence.rows = rows;
      double us[3] = {};
      for (int i = 0; i < 3; ++i) {
        QTTS_ASSIGN_OR_RETURN(us[i], Time(stream, i == 0 ? cut : whole, [&](const Launcher& launch, int layer) {
                                Attend(launch, Precision::kBF16, i == 1 ? windowed : config,
                                       {layer % kCachedLayers, norms, norms, norms}, sequence,
                                       {table.as<void*>(), pages_of_row, page_positions},
                                       {partial.as<float>(), tickets.as<unsigned>()}, splits, qkv.as<const float>(),
                                       {y.data(), 2048}, nullptr);
                              }));
      }
      std::printf("%6d%s %5d %9.2f %9.2f %9.2f %9.2f %9.2f\n", context, spread > 1 ? " +-" : "   ", rows, us[0], us[1],
                  us[2], 1e-6 * bytes / us[2], bytes / bytes_per_us);
      std::fflush(stdout);
    }
  }
  return Status::Ok();
}

// The talker's sampling with the released models' settings.
Status ManySampling(cudaStream_t stream, const DeviceNumbers& numbers) {
  constexpr int kVocab = 3072, kGroups = 16;
  constexpr auto kRows = static_cast<size_t>(kMostManyRows);
  QTTS_ASSIGN_OR_RETURN(const DeviceMemory logits, RandomMemory(kRows * kVocab * 4));
  std::vector<SlotState> states(kRows);
  std::vector<int> slots;
  for (SlotState& state : states) {
    state = {};
    state.max_new_tokens = 1 << 30;
    state.history_rules = {1.05F};
    state.talker = {1, 0.9F, 50, 1.0F};
    state.seed = slots.size();
    slots.push_back(static_cast<int>(slots.size()));
  }
  QTTS_ASSIGN_OR_RETURN(const DeviceMemory device_states, DeviceMemory::Allocate(kRows * sizeof(SlotState)));
  QTTS_ASSIGN_OR_RETURN(const DeviceMemory device_slots, DeviceMemory::Allocate(kRows * sizeof(int)));
  QTTS_RETURN_IF_CUDA_ERROR(
      cudaMemcpy(device_states.data(), states.data(), kRows * sizeof(SlotState), cudaMemcpyHostToDevice), "states");
  QTTS_RETURN_IF_CUDA_ERROR(cudaMemcpy(device_slots.data(), slots.data(), kRows * sizeof(int), cudaMemcpyHostToDevice),
                            "slots");
  QTTS_ASSIGN_OR_RETURN(const DeviceMemory history, DeviceMemory::AllocateZeroed(kRows * kVocab / 8));
  QTTS_ASSIGN_OR_RETURN(const DeviceMemory codes, DeviceMemory::AllocateZeroed(kRows * kGroups * sizeof(int)));
  QTTS_ASSIGN_OR_RETURN(const DeviceMemory live, DeviceMemory::AllocateZeroed(2 * sizeof(int)));
  TalkerSample sample;
  sample.logits = logits.as<const float>();
  sample.vocab = kVocab;
  sample.eos_id = kVocab - 1;
  sample.history = history.as<unsigned>();
  sample.history_words = kVocab / 32;
  FrameRows frame;
  frame.slots = device_slots.as<int>();
  frame.codes = codes.as<int>();
  frame.live = live.as<int>();
  DeviceNumbers many = numbers, few = numbers;
  many.sampling.rows_of_many_threads = INT64_MAX;
  few.sampling.rows_of_many_threads = 0;
  std::printf("us a sampling of 3072 logits, top-k 50\n%5s %9s %9s\n", "rows", "1024", "256");
  for (const int rows : kManyRowsList) {
    double us[2] = {};
    for (int i = 0; i < 2; ++i) {
      QTTS_ASSIGN_OR_RETURN(us[i], Time(stream, i == 0 ? many : few, [&](const Launcher& launch, int /*layer*/) {
                              SampleTalker(launch, Precision::kBF16, sample, frame, device_states.as<SlotState>(),
                                           kGroups, rows);
                            }));
    }
    std::printf("%5d %9.2f %9.2f\n", rows, us[0], us[1]);
  }
  return Status::Ok();
}

// The alignment head of the released models: its query is kept, and multiplied by the keys of the whole context.
Status TextScoresOfRows(cudaStream_t stream, const DeviceNumbers& numbers) {
  constexpr int kCachedLayers = 4;
  constexpr int kMostRowsTimed = 1024;
  const TransformerConfig config = ReleasedAttention(kCachedLayers);
  QTTS_ASSIGN_OR_RETURN(const double bytes_per_us, PeakBandwidth());
  QTTS_ASSIGN_OR_RETURN(const DeviceMemory qkv, RandomMemory(size_t{kMostRowsTimed} * 4096 * 4));
  QTTS_ASSIGN_OR_RETURN(const DeviceMemory queries, RandomMemory(size_t{kMostRowsTimed} * 128 * 4));
  QTTS_ASSIGN_OR_RETURN(const DeviceMemory vectors, RandomMemory(128 * 4));
  QTTS_ASSIGN_OR_RETURN(const DeviceMemory number, DeviceMemory::AllocateZeroed(sizeof(unsigned)));
  QTTS_ASSIGN_OR_RETURN(const PinnedMemory results,
                        PinnedMemory::AllocateZeroed(size_t{kMostRowsTimed} * sizeof(FrameRowResult)));
  const auto* const norms = vectors.as<const float>();
  std::printf("us of the text's scores; bytes: what the keys take at least\n%9s %5s %9s %9s %9s %9s\n", "context",
              "rows", "query", "none", "scores", "bytes");
  for (const int context : {128, 512, 2048}) {
    const int pages_of_row = (context + kPagePositions - 1) / kPagePositions;
    const size_t page_bytes = static_cast<size_t>(kPagePositions) * kCachedLayers * 2 * 8 * 128 * 2;
    for (const int rows : {1, 8, 64, 256, kMostRowsTimed}) {
      const auto pages = static_cast<size_t>(rows) * static_cast<size_t>(pages_of_row);
      size_t free = 0, total = 0;
      QTTS_RETURN_IF_CUDA_ERROR(cudaMemGetInfo(&free, &total), "asking for memory");
      if (pages * page_bytes > free / 2) continue;
      QTTS_ASSIGN_OR_RETURN(const DeviceMemory cache, DeviceMemory::AllocateZeroed(pages * page_bytes));
      std::vector<void*> addresses;
      for (size_t i = 0; i < pages; ++i) addresses.push_back(cache.as<char>() + i * page_bytes);
      std::vector<int> slots, positions(static_cast<size_t>(rows), context - 1);
      for (int i = 0; i < rows; ++i) slots.push_back(i);
      const std::vector<TextWindow> none(static_cast<size_t>(rows));
      const std::vector<TextWindow> wanted(static_cast<size_t>(rows), TextWindow{9, context, context - kTextScores});
      const auto upload = [](const auto& values) -> Result<DeviceMemory> {
        const size_t bytes = values.size() * sizeof(values[0]);
        QTTS_ASSIGN_OR_RETURN(DeviceMemory memory, DeviceMemory::Allocate(bytes));
        QTTS_RETURN_IF_CUDA_ERROR(cudaMemcpy(memory.data(), values.data(), bytes, cudaMemcpyHostToDevice), "rows");
        return memory;
      };
      QTTS_ASSIGN_OR_RETURN(const DeviceMemory table, upload(addresses));
      QTTS_ASSIGN_OR_RETURN(const DeviceMemory device_slots, upload(slots));
      QTTS_ASSIGN_OR_RETURN(const DeviceMemory device_positions, upload(positions));
      QTTS_ASSIGN_OR_RETURN(const DeviceMemory device_none, upload(none));
      QTTS_ASSIGN_OR_RETURN(const DeviceMemory device_wanted, upload(wanted));
      SequenceRows sequence;
      sequence.slots = device_slots.as<const int>();
      sequence.positions = device_positions.as<const int>();
      sequence.rows = rows;
      QTTS_ASSIGN_OR_RETURN(const double keep, Time(stream, numbers, [&](const Launcher& launch, int /*layer*/) {
                              KeepQueries(launch, config, {0, norms, norms, norms}, {0, 5, queries.as<float>()},
                                          sequence, qkv.as<const float>());
                            }));
      double us[2] = {};
      for (int i = 0; i < 2; ++i) {
        FrameRows frame;
        frame.slots = device_slots.as<int>();
        frame.positions = device_positions.as<int>();
        frame.windows = (i == 0 ? device_none : device_wanted).as<TextWindow>();
        frame.frame = number.as<unsigned>();
        QTTS_ASSIGN_OR_RETURN(us[i], Time(stream, numbers, [&](const Launcher& launch, int layer) {
                                ScoreText(launch, Precision::kBF16, config,
                                          {layer % kCachedLayers, 5, queries.as<float>()}, frame,
                                          {table.as<void*>(), pages_of_row, kPagePositions}, {1, kMostRowsTimed}, rows,
                                          results.as<FrameRowResult>());
                              }));
      }
      std::printf("%9d %5d %9.2f %9.2f %9.2f %9.2f\n", context, rows, keep, us[0], us[1],
                  2.0 * 128 * rows * context / bytes_per_us);
      std::fflush(stdout);
    }
  }
  return Status::Ok();
}

Status Run(std::string_view mode) {
  QTTS_ASSIGN_OR_RETURN(const Stream stream, Stream::Create());
  QTTS_ASSIGN_OR_RETURN(const DeviceNumbers numbers, NumbersOfDevice());
  std::printf("numbers: %s\n", numbers.measured ? "measured on this card" : "safe, nobody measured this card");
  if (mode == "attention") return ManyAttention(stream.get(), numbers);
  if (mode == "int8") return Int8Products(stream.get(), numbers);
  if (mode == "scores") return TextScoresOfRows(stream.get(), numbers);
  if (mode == "many") {
    QTTS_RETURN_IF_ERROR(ManyProducts(stream.get(), numbers));
    QTTS_RETURN_IF_ERROR(ManyAttention(stream.get(), numbers));
    return ManySampling(stream.get(), numbers);
  }
  QTTS_RETURN_IF_ERROR(Attention(stream.get(), numbers));
  return Products(stream.get(), numbers);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (argc > 2 || (!mode.empty() && mode != "many" && mode != "attention" && mode != "scores" && mode != "int8")) {
    std::fprintf(stderr, "usage: kernels-bench [many|attention|scores|int8]\n");
    return 2;
  }
  if (const Status status = Run(mode); !status.ok()) {
    std::fprintf(stderr, "kernels-bench: %s\n", status.message().c_str());
    return 1;
  }
  return 0;
}
