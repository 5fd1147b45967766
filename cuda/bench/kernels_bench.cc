// SPDX-License-Identifier: LGPL-2.1-or-later
// kernels-bench: the talker's products and attention for several rows, in each possible shape, and the lines through
// the times of the wide shapes: what ProductNumbers and AttentionNumbers (runtime/device_numbers.h) are made of.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <utility>
#include <vector>

#include "attention/attention.h"
#include "gemm/gemm.h"
#include "runtime/device_memory.h"
#include "runtime/device_table.h"

namespace {

using namespace qtts;        // NOLINT: a program of one file
using namespace qtts::cuda;  // NOLINT

// Products in a graph, each with weights of its own: together they do not fit into L2.
constexpr int kLayers = 28;
constexpr int kReplays = 20;

// Microseconds of one of kLayers dependent calls of `enqueue`(launcher, layer).
Result<double> Time(cudaStream_t stream, const DeviceNumbers& numbers,
                    const std::function<void(const Launcher&, int)>& enqueue) {
  QTTS_ASSIGN_OR_RETURN(const Graph graph, Graph::Capture(stream, [&] {
                          Launcher launch;
                          launch.stream = stream;
                          launch.overlap = true;
                          launch.numbers = &numbers;
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
  constexpr std::pair<GemmShape, const char*> kShapes[] = {
      {GemmShape::k8Rows, "8"},        {GemmShape::k16Rows, "16"},      {GemmShape::kWide16, "wide 16"},
      {GemmShape::kWide32, "wide 32"}, {GemmShape::kWide64, "wide 64"}, {GemmShape::kCluster, "cluster"},
  };
  constexpr int kMostRows = 128;
  WideShape wide_shapes[] = {{GemmShape::kWide16, 16, numbers.products.wide16, {}},
                             {GemmShape::kWide32, 32, numbers.products.wide32, {}},
                             {GemmShape::kWide64, 64, numbers.products.wide64, {}}};
  std::printf("us a product (* = chosen)\n%-14s %5s", "", "rows");
  for (const auto& [shape, name] : kShapes) std::printf(" %9s", name);
  std::printf("\n");
  for (const Product& product : kProducts) {
    Matrix matrix;
    matrix.kind = product.kind;
    matrix.outputs = product.outputs;
    matrix.columns = product.columns;
    const size_t bytes = matrix.bytes(Precision::kBF16);
    QTTS_ASSIGN_OR_RETURN(const DeviceMemory weights, DeviceMemory::AllocateZeroed(bytes * kLayers));
    QTTS_ASSIGN_OR_RETURN(const DeviceMemory x, DeviceMemory::AllocateZeroed(kMostRows * 8192 * 4));
    QTTS_ASSIGN_OR_RETURN(const DeviceMemory y, DeviceMemory::AllocateZeroed(kMostRows * 8192 * 4));
    QTTS_ASSIGN_OR_RETURN(const DeviceMemory normed, DeviceMemory::AllocateZeroed(kMostRows * 8192 * 2));
    QTTS_ASSIGN_OR_RETURN(const DeviceMemory factors, DeviceMemory::AllocateZeroed(kMostRows * 4));
    QTTS_ASSIGN_OR_RETURN(const DeviceMemory norm, DeviceMemory::AllocateZeroed(8192 * 4));
    for (const int rows : {8, 16, 24, 32, 40, 64, 128}) {
      GemmRows r;
      r.x = x.data();
      r.x_stride = product.columns;
      r.y = y.data();
      r.y_stride = product.outputs;
      r.rows = rows;
      r.norm = norm.as<const float>();
      r.eps = 1e-6F;
      r.normed = {normed.data(), factors.as<float>()};
      std::printf("%-14s %5d", product.name, rows);
      for (const auto& [shape, name] : kShapes) {
        r.shape = shape;
        if (!CanRun(shape, matrix, r, numbers.products)) {
          std::printf(" %9s", "-");
          continue;
        }
        QTTS_ASSIGN_OR_RETURN(const double us, Time(stream, numbers, [&](const Launcher& launch, int layer) {
                                Matrix own = matrix;
                                own.data = weights.as<char>() + static_cast<size_t>(layer) * bytes;
                                Gemm(launch, Precision::kBF16, own, r);
                              }));
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
                                   {partial.as<float>(), tickets.as<unsigned>()}, 2, qkv.as<const float>(), y.data(),
                                   2048, nullptr);
                          }));
    std::printf("%5d %9.2f %9.2f\n", rows, append, attend);
  }
  return Status::Ok();
}

Status Run() {
  QTTS_ASSIGN_OR_RETURN(const Stream stream, Stream::Create());
  QTTS_ASSIGN_OR_RETURN(const DeviceNumbers numbers, NumbersOfDevice(0));
  std::printf("numbers: %s\n", numbers.measured ? "measured on this card" : "safe, nobody measured this card");
  QTTS_RETURN_IF_ERROR(Attention(stream.get(), numbers));
  return Products(stream.get(), numbers);
}

}  // namespace

int main() {
  if (const Status status = Run(); !status.ok()) {
    std::fprintf(stderr, "kernels-bench: %s\n", status.message().c_str());
    return 1;
  }
  return 0;
}
