// SPDX-License-Identifier: LGPL-2.1-or-later
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "codec/codec.h"
#include "codec/gemm.h"
#include "codec/gemm_choice.h"
#include "codec/steps.h"
#include "codec/tile_table.h"
#include "gpu/random_codec.h"
#include "runtime/device_memory.h"
#include "runtime/device_table.h"

// Times the GPU codec at the released size on random weights: one frame of n streams as a captured graph; with --tiles
// each of its products in every kernel that can take it; or with --table the fastest ones, as rows of
// codec/tile_table.cc.
namespace qtts {
namespace {

constexpr int kWarmUp = 30;
constexpr int kReplays = 100;
// Multiply-adds of a frame at the released size (spec 10), and its weights.
constexpr double kMultiplyAdds = 2.48e9;
constexpr double kWeights = 102e6;

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "codec-bench: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

// Terabytes a second, bytes read and written.
double CopyBandwidth(cudaStream_t stream) {
  constexpr size_t kBytes = size_t{1} << 30;
  void* from = nullptr;
  void* to = nullptr;
  Check(cudaMalloc(&from, kBytes), "memory");
  Check(cudaMalloc(&to, kBytes), "memory");
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  Check(cudaEventCreate(&begin), "event");
  Check(cudaEventCreate(&end), "event");
  float best = 1e9F;
  for (int i = 0; i < 6; ++i) {
    Check(cudaEventRecord(begin, stream), "event");
    Check(cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDeviceToDevice, stream), "copy");
    Check(cudaEventRecord(end, stream), "event");
    Check(cudaEventSynchronize(end), "copy");
    float ms = 0;
    Check(cudaEventElapsedTime(&ms, begin, end), "event");
    best = std::min(best, ms);
  }
  Check(cudaFree(from), "memory");
  Check(cudaFree(to), "memory");
  return 2.0 * kBytes / best / 1e9;
}

// Device arrays that a call reads and writes.
struct Arrays {
  int32_t* slots = nullptr;
  int32_t* codes = nullptr;
  float* pcm = nullptr;

  Arrays(const cuda::Codec& codec, testing::RandomCodec* random, int n) {
    std::vector<int32_t> all_slots;
    for (int i = 0; i < n; ++i) all_slots.push_back(i);
    const std::vector<int32_t> all_codes = random->Codes(n);
    Check(cudaMalloc(&slots, all_slots.size() * sizeof(int32_t)), "memory");
    Check(cudaMalloc(&codes, all_codes.size() * sizeof(int32_t)), "memory");
    Check(cudaMalloc(&pcm, static_cast<size_t>(n) * static_cast<size_t>(codec.samples_per_frame()) * sizeof(float)),
          "memory");
    Check(cudaMemcpy(slots, all_slots.data(), all_slots.size() * sizeof(int32_t), cudaMemcpyHostToDevice), "copy");
    Check(cudaMemcpy(codes, all_codes.data(), all_codes.size() * sizeof(int32_t), cudaMemcpyHostToDevice), "copy");
  }
  ~Arrays() {
    (void)cudaFree(slots);
    (void)cudaFree(codes);
    (void)cudaFree(pcm);
  }
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;
};

struct Timing {
  double median = 0;  // ms
  double p95 = 0;
};

Timing Measure(cuda::Codec* codec, testing::RandomCodec* random, int n, cudaStream_t stream) {
  const Arrays arrays(*codec, random, n);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  const Status status = codec->Decode(n, arrays.slots, arrays.codes, arrays.pcm, stream);
  Check(cudaStreamEndCapture(stream, &graph), "capture");
  if (!status.ok()) {
    std::fprintf(stderr, "codec-bench: %s\n", status.message().c_str());
    std::exit(1);
  }
  Check(cudaGraphInstantiate(&exec, graph, 0), "graph");
  std::vector<cudaEvent_t> events(kReplays + 1);
  for (cudaEvent_t& event : events) Check(cudaEventCreate(&event), "event");
  for (int i = 0; i < kWarmUp; ++i) Check(cudaGraphLaunch(exec, stream), "launch");
  Check(cudaEventRecord(events[0], stream), "event");
  for (int i = 0; i < kReplays; ++i) {
    Check(cudaGraphLaunch(exec, stream), "launch");
    Check(cudaEventRecord(events[static_cast<size_t>(i) + 1], stream), "event");
  }
  Check(cudaStreamSynchronize(stream), "running");
  std::vector<float> times(kReplays);
  for (size_t i = 0; i < times.size(); ++i) Check(cudaEventElapsedTime(&times[i], events[i], events[i + 1]), "event");
  std::sort(times.begin(), times.end());
  for (cudaEvent_t event : events) Check(cudaEventDestroy(event), "event");
  Check(cudaGraphExecDestroy(exec), "graph");
  Check(cudaGraphDestroy(graph), "graph");
  return {times[kReplays / 2], times[kReplays * 95 / 100]};
}

// --- Each product in each tile: what codec/tile_table.cc is made of

// A frame's products for `n` streams, and memory that they can be run on.
class Products {
 public:
  static Result<std::unique_ptr<Products>> Create(const testing::RandomCodec& random, cuda::CodecPrecision precision,
                                                  int n, int most) {
    std::unique_ptr<Products> products(new Products());
    QTTS_RETURN_IF_CUDA_ERROR(cuda::codec::PrepareKernels(&products->traits), "preparing");
    std::vector<cuda::codec::Step> steps;
    cuda::codec::Builder builder(random.config(), random.weights(), products->traits, precision, most, most,
                                 &products->memory_, &steps);
    QTTS_RETURN_IF_ERROR(builder.Build());
    // Streams in mid-speech, so that every product reads its past.
    const auto count = static_cast<size_t>(n);
    QTTS_ASSIGN_OR_RETURN(const cuda::DeviceNumbers numbers, cuda::NumbersOfDevice());
    if (n > numbers.codec.few_streams && n <= numbers.codec.some_streams) {
      products->traits.processors = std::min(products->traits.processors, numbers.codec.processors_of_some);
    }
    QTTS_ASSIGN_OR_RETURN(products->states_, cuda::DeviceMemory::AllocateZeroed(count * builder.state_bytes()));
    std::vector<std::byte*> states;
    for (size_t i = 0; i < count; ++i) {
      states.push_back(products->states_.as<std::byte>() + i * builder.state_bytes());
    }
    const std::vector<int32_t> frames(count, 100);
    const auto& first = std::get<cuda::codec::DequantizeArgs>(steps.front());
    QTTS_RETURN_IF_CUDA_ERROR(
        cudaMemcpy(first.states, states.data(), states.size() * sizeof(states[0]), cudaMemcpyHostToDevice), "states");
    QTTS_RETURN_IF_CUDA_ERROR(
        cudaMemcpy(first.frames, frames.data(), frames.size() * sizeof(frames[0]), cudaMemcpyHostToDevice), "frames");
    QTTS_ASSIGN_OR_RETURN(products->cold_, cuda::DeviceMemory::AllocateZeroed(kColdBytes));
    for (const cuda::codec::Step& step : steps) {
      const auto* const gemm = std::get_if<cuda::codec::GemmStep>(&step);
      if (gemm == nullptr) continue;
      cuda::codec::GemmStep product = *gemm;
      product.args.batch = {first.states, first.frames};
      product.args.geometry.columns = n * product.args.x.rows;
      products->list.push_back(product);
    }
    return products;
  }

  // us of one of many runs of a product, each with weights that are not in the cache.
  Result<double> Time(const cuda::codec::GemmStep& product, const cuda::codec::GemmTile& tile,
                      cudaStream_t stream) const {
    const bool by_warpgroups = tile.form == cuda::codec::GemmForm::kWarpgroup;
    return TimeRuns(WeightBytes(product), stream, [&](const void* weights) {
      cuda::codec::GemmArgs args = product.args;
      (by_warpgroups ? args.weights.warpgroup : args.weights.data) = weights;
      return cuda::codec::LaunchGemm(args, product.x_planes, tile, traits, stream);
    });
  }

  // The same of a residual unit in one kernel.
  Result<double> TimeUnit(const cuda::codec::GemmStep& first, const cuda::codec::GemmStep& second,
                          cudaStream_t stream) const {
    const size_t first_bytes = WeightBytes(first);
    return TimeRuns(first_bytes + WeightBytes(second), stream, [&](const void* weights) {
      const cuda::codec::UnitWeights unit = {weights, static_cast<const char*>(weights) + first_bytes};
      return cuda::codec::LaunchUnit(first.args, second.args, unit, traits, stream);
    });
  }

  cuda::codec::DeviceTraits traits;
  std::vector<cuda::codec::GemmStep> list;

 private:
  static constexpr size_t kColdBytes = size_t{512} << 20;  // more than a cache holds
  Products() = default;

  static size_t WeightBytes(const cuda::codec::GemmStep& product) {
    const cuda::codec::GemmGeometry& geometry = product.args.geometry;
    return size_t{2} * cuda::codec::kTileRows * cuda::codec::kChannelBlock * static_cast<size_t>(geometry.tiles) *
           static_cast<size_t>(geometry.chunks) * static_cast<size_t>(product.args.weights.planes);
  }

  // us of `launch`(weights of `bytes` bytes).
  Result<double> TimeRuns(size_t bytes, cudaStream_t stream,
                          const std::function<cudaError_t(const void*)>& launch) const {
    constexpr int kRuns = 20;
    const size_t places = std::max<size_t>(1, kColdBytes / bytes);
    QTTS_ASSIGN_OR_RETURN(const cuda::Graph graph, cuda::Graph::Capture(stream, [&]() -> Status {
                            for (size_t i = 0; i < kRuns; ++i) {
                              QTTS_RETURN_IF_CUDA_ERROR(launch(cold_.as<char>() + i % places * bytes), "a product");
                            }
                            return Status::Ok();
                          }));
    QTTS_ASSIGN_OR_RETURN(const cuda::Event begin, cuda::Event::Create(true));
    QTTS_ASSIGN_OR_RETURN(const cuda::Event end, cuda::Event::Create(true));
    float best = 1e9F;
    for (int i = 0; i < 5; ++i) {
      QTTS_RETURN_IF_CUDA_ERROR(cudaEventRecord(begin.get(), stream), "timing");
      QTTS_RETURN_IF_ERROR(graph.Launch(stream));
      QTTS_RETURN_IF_CUDA_ERROR(cudaEventRecord(end.get(), stream), "timing");
      QTTS_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(end.get()), "timing");
      float ms = 0;
      QTTS_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&ms, begin.get(), end.get()), "timing");
      best = std::min(best, ms);
    }
    return best * 1e3 / kRuns;
  }

  cuda::Arena memory_;
  cuda::DeviceMemory states_, cold_;
};

using Tile = cuda::codec::GemmTile;

bool IsSame(const Tile& a, const Tile& b) { return a.form == b.form && a.columns == b.columns && a.tiles == b.tiles; }

// The fields that distinguish a table's rows, but for the planes.
using Kind = std::array<int, 5>;

Kind KindOf(const cuda::codec::GemmStep& product) {
  const cuda::codec::GemmGeometry& geometry = product.args.geometry;
  return {product.args.weights.warpgroup != nullptr ? 1 : 0, product.args.x.rows,
          geometry.tiles * cuda::codec::kTileRows, geometry.chunks * cuda::codec::kChannelBlock, geometry.taps};
}

Status PrintTiles(const testing::RandomCodec& random, cuda::CodecPrecision precision, int most, cudaStream_t stream) {
  QTTS_ASSIGN_OR_RETURN(const cuda::DeviceNumbers numbers, cuda::NumbersOfDevice());
  std::printf("us of a product (* = chosen), numbers: %s\n%7s %8s %7s %7s %6s  %-9s %7s %5s %9s\n",
              numbers.measured ? "measured on this card" : "safe, nobody measured this card", "streams", "columns",
              "outputs", "inputs", "parts", "kernel", "columns", "tiles", "us");
  constexpr const char* kForms[] = {"narrow", "cluster", "wide", "warpgroup", "staged"};
  for (int n = 1; n <= most; n *= 4) {
    QTTS_ASSIGN_OR_RETURN(const std::unique_ptr<Products> products, Products::Create(random, precision, n, n));
    std::set<Kind> seen;
    for (const cuda::codec::GemmStep& product : products->list) {
      if (!seen.insert(KindOf(product)).second) continue;  // another layer's that is alike
      const cuda::codec::GemmGeometry& geometry = product.args.geometry;
      const Tile chosen = ChooseTile(product.args, product.x_planes, products->traits, numbers.codec, /*beside=*/false);
      for (const Tile& tile : PossibleTiles(product.args, product.x_planes, products->traits)) {
        QTTS_ASSIGN_OR_RETURN(const double us, products->Time(product, tile, stream));
        std::printf("%7d %8d %7d %7d %6d  %-9s %7d %5d %8.2f%s\n", n, geometry.columns,
                    geometry.tiles * cuda::codec::kTileRows, geometry.chunks * cuda::codec::kChannelBlock,
                    geometry.segments, kForms[static_cast<int>(tile.form)], tile.columns, tile.tiles, us,
                    IsSame(tile, chosen) ? "*" : "");
      }
    }
  }
  return Status::Ok();
}

// A row of a table on its way.
struct MeasuredRow {
  int unit_streams = 0;
  std::vector<std::pair<int, Tile>> tiles;  // up to so many streams
};

// Measures all products for `n` streams of a codec for `most`, and notes the fastest kernels.
Status MeasureRows(const Products& products, int n, cudaStream_t stream, std::map<Kind, MeasuredRow>* rows) {
  std::map<Kind, double> best_times;
  for (size_t i = 0; i < products.list.size(); ++i) {
    const cuda::codec::GemmStep& product = products.list[i];
    const Kind kind = KindOf(product);
    if (best_times.count(kind) == 0) {
      Tile best;
      double best_us = 0;
      for (const Tile& tile : PossibleTiles(product.args, product.x_planes, products.traits)) {
        QTTS_ASSIGN_OR_RETURN(const double us, products.Time(product, tile, stream));
        if (best_us == 0 || us < best_us) {
          best_us = us;
          best = tile;
        }
      }
      best_times[kind] = best_us;
      std::vector<std::pair<int, Tile>>& tiles = (*rows)[kind].tiles;
      tiles.emplace_back(n, best);
    }
    Tile tile;
    if (i == 0 || products.list[i - 1].unit.first == nullptr) continue;
    const cuda::codec::GemmStep& first = products.list[i - 1];
    if (!UnitTakes(first.args, product.args, first.unit, &tile, products.traits)) continue;
    QTTS_ASSIGN_OR_RETURN(const double us, products.TimeUnit(first, product, stream));
    const Kind unit = KindOf(first);
    (*rows)[unit].unit_streams = us < best_times[unit] + best_times[kind] ? n : 0;
  }
  return Status::Ok();
}

// Prints the rows of one precision in the form of codec/tile_table.cc: of products whose weights lie there once, by a
// codec for fewer streams than keep all weights twice, and of those whose weights lie there twice.
Status PrintTable(const testing::RandomCodec& random, cuda::CodecPrecision precision, cudaStream_t stream) {
  constexpr const char* kLetters = "NCWGS";
  std::map<Kind, MeasuredRow> rows;
  for (const int most : {96, 256}) {
    for (const int n : {1, 2, 4, 8, 16, 32, 64, 96, 128, 160, 192, 224, 256}) {
      if (n > most) break;
      QTTS_ASSIGN_OR_RETURN(const std::unique_ptr<Products> products, Products::Create(random, precision, n, most));
      // Products of the larger codec that the smaller one has alike are measured once, where both have `n` streams.
      std::map<Kind, MeasuredRow> now;
      QTTS_RETURN_IF_ERROR(MeasureRows(*products, n, stream, &now));
      for (auto& [kind, row] : now) {
        MeasuredRow& all = rows[kind];
        if (!all.tiles.empty() && all.tiles.back().first >= n) continue;
        if (!all.tiles.empty() && IsSame(all.tiles.back().second, row.tiles.front().second)) all.tiles.pop_back();
        all.tiles.push_back(row.tiles.front());
        if (all.unit_streams == 0 || row.unit_streams == 0) all.unit_streams = row.unit_streams;
      }
    }
  }
  for (const auto& [kind, row] : rows) {
    std::printf("    {%d, %s, %d, %d, %d, %d, %d, {{", precision == cuda::CodecPrecision::kFast ? 1 : 2,
                kind[0] != 0 ? "true" : "false", kind[1], kind[2], kind[3], kind[4], row.unit_streams);
    for (const auto& [streams, tile] : row.tiles) {
      const bool last = streams == row.tiles.back().first;
      std::printf("{%s, %c(%d, %d)}%s", last ? "kAny" : std::to_string(streams).c_str(),
                  kLetters[static_cast<int>(tile.form)], tile.columns, tile.tiles, last ? "" : ", ");
    }
    std::printf("}}},\n");
    if (row.tiles.size() > cuda::codec::ProductTiles::kMaxRanges) {
      std::printf("    // more ranges than ProductTiles::kMaxRanges: join some\n");
    }
  }
  return Status::Ok();
}

int Main(int argc, char** argv) {
  int most = 256;
  bool tiles = false;
  bool once = false;  // three frames of `most` streams without a graph, for a profiler
  bool table = false;
  cuda::CodecPrecision precision = cuda::CodecPrecision::kExact;
  testing::CodecShape shape = testing::CodecShape::Released();
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--once") == 0) {
      once = true;
    } else if (std::strcmp(argv[i], "--tiles") == 0) {
      tiles = true;
    } else if (std::strcmp(argv[i], "--table") == 0) {
      table = true;
    } else if (std::strcmp(argv[i], "--planes=11") == 0) {
      precision = cuda::CodecPrecision::kFast;
    } else if (std::strcmp(argv[i], "--planes=22") == 0) {
      precision = cuda::CodecPrecision::kExact;
    } else if (std::strncmp(argv[i], "--layers=", 9) == 0) {
      shape.layers = std::atoi(argv[i] + 9);
    } else if (std::atoi(argv[i]) > 0) {
      most = std::atoi(argv[i]);
    } else {
      std::fprintf(
          stderr,
          "usage: codec-bench [--once | --tiles | --table] [--planes=22 (exact) | --planes=11 (fast)] [--layers=N] "
          "[most streams]\n");
      return 2;
    }
  }
  cudaStream_t stream = nullptr;
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  testing::RandomCodec random(shape, 1);
  if (tiles || table) {
    const Status status = tiles ? PrintTiles(random, precision, most, stream) : PrintTable(random, precision, stream);
    if (!status.ok()) std::fprintf(stderr, "codec-bench: %s\n", status.message().c_str());
    return status.ok() ? 0 : 1;
  }
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  Check(cudaEventCreate(&begin), "event");
  Check(cudaEventCreate(&end), "event");
  Check(cudaEventRecord(begin, stream), "event");
  auto codec = cuda::Codec::Create(random.config(), random.weights(), precision, most, most);
  if (!codec.ok()) {
    std::fprintf(stderr, "codec-bench: %s\n", codec.status().message().c_str());
    return 1;
  }
  for (int i = 0; i < most; ++i) {
    if (const Status status = (*codec)->Reset(i, stream); !status.ok()) {
      std::fprintf(stderr, "codec-bench: %s\n", status.message().c_str());
      return 1;
    }
  }
  Check(cudaEventRecord(end, stream), "event");
  Check(cudaEventSynchronize(end), "loading");
  float load = 0;
  Check(cudaEventElapsedTime(&load, begin, end), "event");
  if (once) {
    const Arrays arrays(**codec, &random, most);
    for (int i = 0; i < 3; ++i) {
      if (const Status status = (*codec)->Decode(most, arrays.slots, arrays.codes, arrays.pcm, stream); !status.ok()) {
        std::fprintf(stderr, "codec-bench: %s\n", status.message().c_str());
        return 1;
      }
    }
    Check(cudaStreamSynchronize(stream), "running");
    return 0;
  }
  const double bandwidth = CopyBandwidth(stream);
  const double planes = precision == cuda::CodecPrecision::kFast ? 1 : 2;
  std::printf("load %.0f ms, %.0f MB on the device for %d streams, copies %.2f TB/s\n", load,
              static_cast<double>((*codec)->device_bytes()) / 1e6, most, bandwidth);
  std::printf("%7s %10s %10s %12s %12s %14s\n", "streams", "ms p50", "ms p95", "us/stream", "weights ms", "TFLOP/s");
  for (int n = 1; n <= most; n *= 2) {
    const Timing t = Measure(codec->get(), &random, n, stream);
    std::printf("%7d %10.4f %10.4f %12.2f %12.4f %14.1f\n", n, t.median, t.p95, t.median * 1e3 / n,
                kWeights * 2 * planes / bandwidth / 1e9, 2 * kMultiplyAdds * n / t.median / 1e9);
  }
  return 0;
}

}  // namespace
}  // namespace qtts

int main(int argc, char** argv) { return qtts::Main(argc, argv); }
