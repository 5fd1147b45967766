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
#include <span>
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
// each of its products in every kernel that can take it, with --chosen only in the one that the codec takes; or with
// --table the fastest ones, as rows of codec/tile_table.cc; with --table=whole those with which a whole frame is
// fastest. --streams and --rows (columns of a stream) measure a part of them.
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
                                                  int most) {
    std::unique_ptr<Products> products(new Products());
    QTTS_RETURN_IF_CUDA_ERROR(cuda::codec::PrepareKernels(&products->traits), "preparing");
    products->processors_ = products->traits.processors;
    QTTS_ASSIGN_OR_RETURN(const cuda::DeviceNumbers numbers, cuda::NumbersOfDevice());
    products->numbers_ = numbers.codec;
    std::vector<cuda::codec::Step> steps;
    cuda::codec::Builder builder(random.config(), random.weights(), products->traits, precision, most, most,
                                 &products->memory_, &steps);
    QTTS_RETURN_IF_ERROR(builder.Build());
    // Streams in mid-speech, so that every product reads its past.
    const auto count = static_cast<size_t>(most);
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
      products->list.push_back(product);
    }
    products->SetStreams(most);
    return products;
  }

  // Makes the products those of `n` streams, with as many SMs as the codec gives them.
  void SetStreams(int n) {
    traits.processors = processors_;
    if (n > numbers_.few_streams && n <= numbers_.some_streams) {
      traits.processors = std::min(processors_, numbers_.processors_of_some);
    }
    for (cuda::codec::GemmStep& product : list) product.args.geometry.columns = n * product.args.x.rows;
  }

  // us of one of many runs of a product, each with weights that are not in the cache. A kernel that is far from taking
  // at most `bound` us is timed only roughly.
  Result<double> Time(const cuda::codec::GemmStep& product, const cuda::codec::GemmTile& tile, double bound,
                      cudaStream_t stream) const {
    const bool by_warpgroups = tile.form == cuda::codec::GemmForm::kWarpgroup;
    return TimeRuns(WeightBytes(product), bound, stream, [&](const void* weights) {
      cuda::codec::GemmArgs args = product.args;
      (by_warpgroups ? args.weights.warpgroup : args.weights.data) = weights;
      return cuda::codec::LaunchGemm(args, product.x_planes, tile, traits, stream);
    });
  }

  // The same of a residual unit in one kernel.
  Result<double> TimeUnit(const cuda::codec::GemmStep& first, const cuda::codec::GemmStep& second,
                          cudaStream_t stream) const {
    const size_t first_bytes = WeightBytes(first);
    return TimeRuns(first_bytes + WeightBytes(second), kNoBound, stream, [&](const void* weights) {
      const cuda::codec::UnitWeights unit = {weights, static_cast<const char*>(weights) + first_bytes};
      return cuda::codec::LaunchUnit(first.args, second.args, unit, traits, stream);
    });
  }

  static constexpr double kNoBound = 1e12;

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
  Result<double> TimeRuns(size_t bytes, double bound, cudaStream_t stream,
                          const std::function<cudaError_t(const void*)>& launch) const {
    constexpr int kRuns = 20;
    constexpr double kLaunch = 20;  // us, of a launch without a graph
    const size_t places = std::max<size_t>(1, kColdBytes / bytes);
    QTTS_ASSIGN_OR_RETURN(const cuda::Event begin, cuda::Event::Create(true));
    QTTS_ASSIGN_OR_RETURN(const cuda::Event end, cuda::Event::Create(true));
    const auto elapsed = [&](const std::function<Status()>& work) -> Result<double> {
      QTTS_RETURN_IF_CUDA_ERROR(cudaEventRecord(begin.get(), stream), "timing");
      QTTS_RETURN_IF_ERROR(work());
      QTTS_RETURN_IF_CUDA_ERROR(cudaEventRecord(end.get(), stream), "timing");
      QTTS_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(end.get()), "timing");
      float ms = 0;
      QTTS_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&ms, begin.get(), end.get()), "timing");
      return ms * 1e3;
    };
    const auto once = [&] { return cuda::CudaStatus(launch(cold_.as<char>()), "a product"); };
    QTTS_RETURN_IF_ERROR(once());
    QTTS_ASSIGN_OR_RETURN(const double rough, elapsed(once));
    if (rough > 1.5 * bound + kLaunch) return rough;
    QTTS_ASSIGN_OR_RETURN(const cuda::Graph graph, cuda::Graph::Capture(stream, [&]() -> Status {
                            for (size_t i = 0; i < kRuns; ++i) {
                              QTTS_RETURN_IF_CUDA_ERROR(launch(cold_.as<char>() + i % places * bytes), "a product");
                            }
                            return Status::Ok();
                          }));
    double best = kNoBound;
    for (int i = 0; i < 5; ++i) {
      QTTS_ASSIGN_OR_RETURN(const double us, elapsed([&] { return graph.Launch(stream); }));
      best = std::min(best, us);
    }
    return best / kRuns;
  }

  cuda::Arena memory_;
  cuda::DeviceMemory states_, cold_;
  cuda::CodecNumbers numbers_;
  int processors_ = 0;
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

// The part that --tiles and --table measure.
struct Selection {
  std::vector<int> streams;
  std::vector<int> rows;  // products with so many columns of a stream; empty: all
  bool chosen = false;    // only the kernel that the codec would take

  bool Has(const cuda::codec::GemmStep& product) const {
    return rows.empty() || std::find(rows.begin(), rows.end(), product.args.x.rows) != rows.end();
  }
};

Status PrintTiles(const testing::RandomCodec& random, cuda::CodecPrecision precision, const Selection& selection,
                  cudaStream_t stream) {
  QTTS_ASSIGN_OR_RETURN(const cuda::DeviceNumbers numbers, cuda::NumbersOfDevice());
  std::printf("us of a product (* = chosen), numbers: %s\n%7s %6s %8s %7s %7s %5s %6s  %-9s %7s %5s %9s %8s %6s\n",
              numbers.measured ? "measured on this card" : "safe, nobody measured this card", "streams", "layers",
              "columns", "outputs", "inputs", "taps", "parts", "kernel", "columns", "tiles", "us", "TFLOP/s", "TB/s");
  constexpr const char* kForms[] = {"narrow", "cluster", "wide", "warpgroup", "staged"};
  for (const int n : selection.streams) {
    QTTS_ASSIGN_OR_RETURN(const std::unique_ptr<Products> products, Products::Create(random, precision, n));
    std::map<Kind, int> layers;
    for (const cuda::codec::GemmStep& product : products->list) ++layers[KindOf(product)];
    std::set<Kind> seen;
    double sum = 0;
    for (const cuda::codec::GemmStep& product : products->list) {
      if (!selection.Has(product) || !seen.insert(KindOf(product)).second) continue;
      const cuda::codec::GemmGeometry& geometry = product.args.geometry;
      const cuda::codec::GemmEpilogue& end = product.args.epilogue;
      const int planes = product.args.weights.planes;
      const double outputs = geometry.tiles * cuda::codec::kTileRows;
      const double inputs = geometry.chunks * cuda::codec::kChannelBlock;
      // Operations of the matrix instructions: of two planes each, three of the four products.
      const double flops = 2 * outputs * inputs * geometry.columns * (planes == 2 ? 3 : 1);
      // Columns and weights once, and what the epilogue reads and writes.
      const double words = (end.residual != nullptr ? 4 : 0) + (end.y != nullptr ? 4 : 0) +
                           (end.out.data == nullptr                        ? 0
                            : end.out.planes == cuda::codec::Planes::kHalf ? 2
                                                                           : 4);
      const double bytes = 2.0 * planes * (inputs / geometry.taps * geometry.columns + outputs * inputs) +
                           words * outputs * geometry.columns;
      const Tile chosen = ChooseTile(product.args, product.x_planes, products->traits,
                                     TableFor(products->traits, numbers.codec), /*beside=*/false);
      double best = Products::kNoBound;
      for (const Tile& tile : PossibleTiles(product.args, product.x_planes, products->traits)) {
        const bool is_chosen = IsSame(tile, chosen);
        if (selection.chosen && !is_chosen) continue;
        QTTS_ASSIGN_OR_RETURN(const double us, products->Time(product, tile, best, stream));
        best = std::min(best, us);
        if (is_chosen) sum += us * layers[KindOf(product)];
        std::printf("%7d %6d %8d %7.0f %7.0f %5d %6d  %-9s %7d %5d %8.2f%s %8.1f %6.2f\n", n, layers[KindOf(product)],
                    geometry.columns, outputs, inputs, geometry.taps, geometry.segments,
                    kForms[static_cast<int>(tile.form)], tile.columns, tile.tiles, us, is_chosen ? "*" : " ",
                    flops / us / 1e6, bytes / us / 1e6);
        std::fflush(stdout);
      }
    }
    std::printf("%7d streams: %.0f us, the chosen kernels of all these layers\n", n, sum);
  }
  return Status::Ok();
}

// A kernel of a product.
struct TimedTile {
  Tile tile;
  double us = Products::kNoBound;
};

// Times all kernels of a product, those that take far longer than others only roughly. Returns the fastest first.
Result<std::vector<TimedTile>> TimeTiles(const Products& products, const cuda::codec::GemmStep& product,
                                         cudaStream_t stream) {
  std::vector<Tile> tiles = PossibleTiles(product.args, product.x_planes, products.traits);
  // The rule's tile first: kernels that take far longer are given up early.
  const Tile likely = RuleTile(product.args, product.x_planes, products.traits);
  std::stable_partition(tiles.begin(), tiles.end(), [&](const Tile& tile) { return IsSame(tile, likely); });
  std::vector<TimedTile> timed;
  double best = Products::kNoBound;
  for (const Tile& tile : tiles) {
    QTTS_ASSIGN_OR_RETURN(const double us, products.Time(product, tile, best, stream));
    best = std::min(best, us);
    timed.push_back({tile, us});
  }
  std::stable_sort(timed.begin(), timed.end(), [](const TimedTile& a, const TimedTile& b) { return a.us < b.us; });
  return timed;
}

std::string NameOf(const Tile& tile) {
  constexpr const char* kLetters = "NCWGS";
  return std::string(1, kLetters[static_cast<int>(tile.form)]) + "(" + std::to_string(tile.columns) + ", " +
         std::to_string(tile.tiles) + ")";
}

// A row of the table in the making, for ascending numbers of streams.
struct Row {
  const cuda::codec::GemmStep* product = nullptr;
  std::vector<std::pair<int, Tile>> tiles;  // up to so many streams
  int unit_streams = 0;

  void Add(int streams, const Tile& tile) {
    if (!tiles.empty() && IsSame(tiles.back().second, tile)) tiles.pop_back();
    tiles.emplace_back(streams, tile);
  }
  void AddUnit(int streams, bool is_unit) {
    if (!is_unit) {
      unit_streams = 0;
    } else if (unit_streams == 0) {
      unit_streams = streams;
    }
  }
  void Print() const {
    const Kind kind = KindOf(*product);
    std::printf("    {%d, %s, %d, %d, %d, %d, %d, {{", product->args.weights.planes, kind[0] != 0 ? "true" : "false",
                kind[1], kind[2], kind[3], kind[4], unit_streams);
    for (const auto& [n, tile] : tiles) {
      const bool last = n == tiles.back().first;
      std::printf("{%s, %s}%s", last ? "kAny" : std::to_string(n).c_str(), NameOf(tile).c_str(), last ? "" : ", ");
    }
    std::printf("}}},\n");
    if (tiles.size() > cuda::codec::ProductTiles::kMaxRanges) {
      std::printf("    // more ranges than ProductTiles::kMaxRanges: join some\n");
    }
    std::fflush(stdout);
  }
};

// Returns the product behind the `at`-th if the two could be one kernel, else null.
const cuda::codec::GemmStep* SecondOfUnit(const Products& products, size_t at) {
  const cuda::codec::GemmStep& first = products.list[at];
  if (first.unit.first == nullptr || at + 1 == products.list.size()) return nullptr;
  const cuda::codec::GemmStep* const second = &products.list[at + 1];
  Tile tile;
  return UnitTakes(first.args, second->args, first.unit, &tile, products.traits) ? second : nullptr;
}

// Measures the `at`-th product of a codec and prints its row.
Status PrintRow(Products* products, size_t at, const std::vector<int>& streams, cudaStream_t stream) {
  const cuda::codec::GemmStep& product = products->list[at];
  Row row{&product};
  for (const int n : streams) {
    products->SetStreams(n);
    QTTS_ASSIGN_OR_RETURN(const std::vector<TimedTile> timed, TimeTiles(*products, product, stream));
    row.Add(n, timed.front().tile);
    const cuda::codec::GemmStep* const second = SecondOfUnit(*products, at);
    if (second == nullptr) continue;
    QTTS_ASSIGN_OR_RETURN(const double us, products->TimeUnit(product, *second, stream));
    QTTS_ASSIGN_OR_RETURN(const std::vector<TimedTile> of_second, TimeTiles(*products, *second, stream));
    row.AddUnit(n, us < timed.front().us + of_second.front().us);
  }
  row.Print();
  return Status::Ok();
}

// Prints the rows of one precision in the form of codec/tile_table.cc, each as soon as it is measured: of products
// whose weights lie there once, by a codec for fewer streams than keep all weights twice, and of those whose weights
// lie there twice. Where no weights are kept twice, there are only the former.
Status PrintTable(const testing::RandomCodec& random, cuda::CodecPrecision precision, const Selection& selection,
                  cudaStream_t stream) {
  constexpr int kFewer = 96;
  const int most = *std::max_element(selection.streams.begin(), selection.streams.end());
  struct Place {
    Products* products = nullptr;
    size_t at = 0;
    int most = 0;  // streams of the codec
  };
  std::map<Kind, Place> places;
  std::vector<std::unique_ptr<Products>> codecs;
  for (const int of_codec : {kFewer, most}) {
    if (of_codec > most) continue;
    QTTS_ASSIGN_OR_RETURN(std::unique_ptr<Products> products, Products::Create(random, precision, of_codec));
    std::map<Kind, Place> own;
    for (size_t i = 0; i < products->list.size(); ++i) {
      own.try_emplace(KindOf(products->list[i]), Place{products.get(), i, of_codec});
    }
    for (const auto& [kind, place] : own) places[kind] = place;
    codecs.push_back(std::move(products));
  }
  for (const auto& [kind, place] : places) {
    if (!selection.Has(place.products->list[place.at])) continue;
    std::vector<int> streams;
    for (const int n : selection.streams) {
      if (n <= place.most) streams.push_back(n);
    }
    QTTS_RETURN_IF_ERROR(PrintRow(place.products, place.at, streams, stream));
  }
  return Status::Ok();
}

// --- The same by the time of a whole frame

using Table = std::vector<cuda::codec::ProductTiles>;

// The kernel of a kind of product: its tile, or one with the next product.
struct Choice {
  Tile tile;
  bool is_unit = false;
};

bool IsSame(const Choice& a, const Choice& b) {
  return a.is_unit == b.is_unit && (a.is_unit || IsSame(a.tile, b.tile));
}

std::string NameOf(const Choice& choice) { return choice.is_unit ? "unit" : NameOf(choice.tile); }

// Returns the table with this kernel for all layers like the product.
Table With(Table table, const cuda::codec::GemmStep& product, const Choice& choice) {
  const Kind kind = KindOf(product);
  const int planes = product.args.weights.planes;
  std::erase_if(table, [&](const cuda::codec::ProductTiles& row) {
    return row.planes == planes && Kind{row.copied ? 1 : 0, row.rows, row.outputs, row.inputs, row.taps} == kind;
  });
  table.push_back({.planes = planes,
                   .copied = kind[0] != 0,
                   .rows = kind[1],
                   .outputs = kind[2],
                   .inputs = kind[3],
                   .taps = kind[4],
                   .unit_streams = choice.is_unit ? 1 : 0,
                   .tiles = {{{cuda::codec::kAnyStreams, choice.tile}}}});
  return table;
}

// A kind of product in the search.
struct Sought {
  size_t at = 0;    // its first layer, in the list of products
  double work = 0;  // of all its layers, in products of a tile and a chunk
  Choice choice;
  std::vector<Choice> tries;
};

// Returns the kinds of product with their kernels by `table`, those with the most work first. Worth trying are kernels
// that are not far slower than others alone.
Result<std::vector<Sought>> SoughtOf(const Products& products, std::span<const cuda::codec::ProductTiles> table,
                                     const Selection& selection, cudaStream_t stream) {
  constexpr double kFar = 1.5;
  std::map<Kind, Sought> kinds;
  for (size_t i = 0; i < products.list.size(); ++i) {
    const cuda::codec::GemmStep& product = products.list[i];
    if (!selection.Has(product)) continue;
    const auto [found, is_new] = kinds.try_emplace(KindOf(product));
    Sought& sought = found->second;
    const cuda::codec::GemmGeometry& geometry = product.args.geometry;
    sought.work += static_cast<double>(geometry.columns) * geometry.tiles * geometry.chunks;
    if (!is_new) continue;
    sought.at = i;
    sought.choice.tile = ChooseTile(product.args, product.x_planes, products.traits, table, /*beside=*/false);
    QTTS_ASSIGN_OR_RETURN(const std::vector<TimedTile> timed, TimeTiles(products, product, stream));
    for (const TimedTile& tile : timed) {
      if (tile.us <= kFar * timed.front().us) sought.tries.push_back({tile.tile});
    }
    const cuda::codec::GemmStep* const second = SecondOfUnit(products, i);
    if (second == nullptr) continue;
    sought.choice.is_unit =
        ChooseUnit(product.args, second->args, product.x_planes, product.unit, products.traits, table);
    sought.tries.push_back({sought.choice.tile, true});
  }
  std::vector<Sought> all;
  for (auto& [kind, sought] : kinds) all.push_back(std::move(sought));
  std::sort(all.begin(), all.end(), [](const Sought& a, const Sought& b) { return a.work > b.work; });
  return all;
}

// Medians of two graphs' times, ms.
struct Comparison {
  double base = 0;
  double other = 0;
  double gain() const { return 1 - other / base; }
};

// Runs two graphs by turns, so that a clock that changes does so for both.
Result<Comparison> Compare(const cuda::Graph& base, const cuda::Graph& other, int turns, cudaStream_t stream) {
  std::vector<cuda::Event> events;
  for (int i = 0; i <= 2 * turns; ++i) {
    QTTS_ASSIGN_OR_RETURN(cuda::Event event, cuda::Event::Create(true));
    events.push_back(std::move(event));
  }
  // One turn that is not timed.
  QTTS_RETURN_IF_ERROR(base.Launch(stream));
  QTTS_RETURN_IF_ERROR(other.Launch(stream));
  QTTS_RETURN_IF_CUDA_ERROR(cudaEventRecord(events[0].get(), stream), "timing");
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    QTTS_RETURN_IF_ERROR((i % 2 == 0 ? base : other).Launch(stream));
    QTTS_RETURN_IF_CUDA_ERROR(cudaEventRecord(events[i + 1].get(), stream), "timing");
  }
  QTTS_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream), "timing");
  std::array<std::vector<float>, 2> times;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    float& ms = times[i % 2].emplace_back();
    QTTS_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&ms, events[i].get(), events[i + 1].get()), "timing");
  }
  for (std::vector<float>& some : times) std::sort(some.begin(), some.end());
  const size_t middle = times[0].size() / 2;
  return Comparison{times[0][middle], times[1][middle]};
}

// Adds to `rows` the kernels with which a frame of `n` streams is fastest. The search begins with the card's table and
// changes one kind of product at a time, twice over. It prints each change that makes the frame faster, and keeps it.
Status Search(cuda::Codec* codec, Products* products, const Arrays& arrays, int n, const Selection& selection,
              std::map<Kind, Row>* rows, cudaStream_t stream) {
  constexpr double kLeastGain = 0.001;
  constexpr double kFarSlower = 0.003;  // not tried a second time
  constexpr int kFewTurns = 5, kManyTurns = 21;
  QTTS_ASSIGN_OR_RETURN(const cuda::DeviceNumbers numbers, cuda::NumbersOfDevice());
  products->SetStreams(n);
  const std::span<const cuda::codec::ProductTiles> of_card = TableFor(products->traits, numbers.codec);
  QTTS_ASSIGN_OR_RETURN(std::vector<Sought> all, SoughtOf(*products, of_card, selection, stream));
  const auto capture = [&](std::span<const cuda::codec::ProductTiles> table) {
    codec->UseTiles(table);
    return cuda::Graph::Capture(stream,
                                [&] { return codec->Decode(n, arrays.slots, arrays.codes, arrays.pcm, stream); });
  };
  Table table(of_card.begin(), of_card.end());
  QTTS_ASSIGN_OR_RETURN(const cuda::Graph first, capture(table));
  QTTS_ASSIGN_OR_RETURN(cuda::Graph best, capture(table));
  // Until attention has a whole window to read.
  for (int i = 0; i < kReplays; ++i) QTTS_RETURN_IF_ERROR(first.Launch(stream));
  bool changed = true;
  for (int pass = 0; pass < 2 && changed; ++pass) {
    changed = false;
    for (Sought& sought : all) {
      std::vector<Choice> close;
      for (const Choice& choice : sought.tries) {
        if (IsSame(choice, sought.choice)) {
          close.push_back(choice);
          continue;
        }
        const cuda::codec::GemmStep& product = products->list[sought.at];
        Table trial = With(table, product, choice);
        QTTS_ASSIGN_OR_RETURN(cuda::Graph graph, capture(trial));
        QTTS_ASSIGN_OR_RETURN(Comparison compared, Compare(best, graph, kFewTurns, stream));
        if (compared.gain() >= -kFarSlower) close.push_back(choice);
        if (compared.gain() < kLeastGain / 2) continue;
        QTTS_ASSIGN_OR_RETURN(compared, Compare(best, graph, kManyTurns, stream));
        if (compared.gain() < kLeastGain) continue;
        const Kind kind = KindOf(product);
        std::printf("// %d streams, {%d, %s, %d, %d, %d, %d}: %s to %s, %.4f to %.4f ms (%.2f %%)\n", n,
                    product.args.weights.planes, kind[0] != 0 ? "true" : "false", kind[1], kind[2], kind[3], kind[4],
                    NameOf(sought.choice).c_str(), NameOf(choice).c_str(), compared.base, compared.other,
                    -100 * compared.gain());
        std::fflush(stdout);
        sought.choice = choice;
        table = std::move(trial);
        best = std::move(graph);
        changed = true;
      }
      sought.tries = std::move(close);
    }
  }
  codec->UseTiles(of_card);
  QTTS_ASSIGN_OR_RETURN(const Comparison compared, Compare(first, best, kReplays, stream));
  const int table_streams = cuda::codec::TableStreams(n, products->traits);
  std::printf("// %d streams (%d of the table): %.4f ms by the card's table, %.4f ms by these kernels (%.2f %%)\n", n,
              table_streams, compared.base, compared.other, -100 * compared.gain());
  std::fflush(stdout);
  for (const Sought& sought : all) {
    const cuda::codec::GemmStep& product = products->list[sought.at];
    Row& row = (*rows)[KindOf(product)];
    row.product = &product;
    row.Add(table_streams, sought.choice.tile);
    row.AddUnit(n, sought.choice.is_unit);
  }
  return Status::Ok();
}

// Loads a codec with all its slots in use.
Result<std::unique_ptr<cuda::Codec>> LoadCodec(const testing::RandomCodec& random, cuda::CodecPrecision precision,
                                               int most, cudaStream_t stream) {
  QTTS_ASSIGN_OR_RETURN(std::unique_ptr<cuda::Codec> codec,
                        cuda::Codec::Create(random.config(), random.weights(), precision, most, most));
  for (int i = 0; i < most; ++i) QTTS_RETURN_IF_ERROR(codec->Reset(i, stream));
  return codec;
}

// Prints the rows of a codec for `most` streams, after searches for each number of streams.
Status PrintWholeTable(testing::RandomCodec* random, cuda::CodecPrecision precision, int most,
                       const Selection& selection, cudaStream_t stream) {
  QTTS_ASSIGN_OR_RETURN(const std::unique_ptr<cuda::Codec> codec, LoadCodec(*random, precision, most, stream));
  QTTS_ASSIGN_OR_RETURN(const std::unique_ptr<Products> products, Products::Create(*random, precision, most));
  const Arrays arrays(*codec, random, most);
  std::map<Kind, Row> rows;
  for (const int n : selection.streams) {
    QTTS_RETURN_IF_ERROR(Search(codec.get(), products.get(), arrays, n, selection, &rows, stream));
  }
  for (const auto& [kind, row] : rows) row.Print();
  return Status::Ok();
}

// Returns the numbers of a list as in 64,256.
std::vector<int> NumbersOf(const char* list) {
  std::vector<int> numbers;
  for (const char* at = list; *at != '\0';) {
    char* end = nullptr;
    const long number = std::strtol(at, &end, 10);
    if (end == at || number < 1 || number > 4096) return {};
    numbers.push_back(static_cast<int>(number));
    at = *end == ',' ? end + 1 : end;
  }
  return numbers;
}

int Main(int argc, char** argv) {
  int most = 256;
  bool tiles = false;
  bool once = false;  // three frames of `most` streams without a graph, for a profiler
  bool table = false;
  bool whole = false;
  Selection selection;
  cuda::CodecPrecision precision = cuda::CodecPrecision::kExact;
  testing::CodecShape shape = testing::CodecShape::Released();
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--once") == 0) {
      once = true;
    } else if (std::strcmp(argv[i], "--tiles") == 0) {
      tiles = true;
    } else if (std::strcmp(argv[i], "--table") == 0) {
      table = true;
    } else if (std::strcmp(argv[i], "--table=whole") == 0) {
      whole = true;
    } else if (std::strcmp(argv[i], "--chosen") == 0) {
      tiles = selection.chosen = true;
    } else if (std::strncmp(argv[i], "--streams=", 10) == 0 && !NumbersOf(argv[i] + 10).empty()) {
      selection.streams = NumbersOf(argv[i] + 10);
    } else if (std::strncmp(argv[i], "--rows=", 7) == 0 && !NumbersOf(argv[i] + 7).empty()) {
      selection.rows = NumbersOf(argv[i] + 7);
    } else if (std::strcmp(argv[i], "--planes=11") == 0) {
      precision = cuda::CodecPrecision::kFast;
    } else if (std::strcmp(argv[i], "--planes=22") == 0) {
      precision = cuda::CodecPrecision::kExact;
    } else if (std::strncmp(argv[i], "--layers=", 9) == 0) {
      shape.layers = std::atoi(argv[i] + 9);
    } else if (std::atoi(argv[i]) > 0) {
      most = std::atoi(argv[i]);
    } else {
      std::fprintf(stderr,
                   "usage: codec-bench [--once | --tiles | --chosen | --table | --table=whole] [--streams=N,...] "
                   "[--rows=N,...] [--planes=22 (exact) | --planes=11 (fast)] [--layers=N] [most streams]\n"
                   "  --table        the fastest kernel of each product alone, as rows of codec/tile_table.cc\n"
                   "  --table=whole  the kernels with which a whole frame is fastest: changes one kind of product at a "
                   "time, beginning with the card's table\n");
      return 2;
    }
  }
  cudaStream_t stream = nullptr;
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  testing::RandomCodec random(shape, 1);
  if (whole) {
    if (selection.streams.empty()) selection.streams = {most};
    std::sort(selection.streams.begin(), selection.streams.end());
    const Status status =
        PrintWholeTable(&random, precision, std::max(most, selection.streams.back()), selection, stream);
    if (!status.ok()) std::fprintf(stderr, "codec-bench: %s\n", status.message().c_str());
    return status.ok() ? 0 : 1;
  }
  if (tiles || table) {
    if (selection.streams.empty() && table) {
      selection.streams = {1, 2, 4, 8, 16, 32, 64, 96, 128, 160, 192, 224, 256};
    }
    if (selection.streams.empty()) {
      for (int n = 1; n <= most; n *= 4) selection.streams.push_back(n);
    }
    std::sort(selection.streams.begin(), selection.streams.end());
    const Status status =
        tiles ? PrintTiles(random, precision, selection, stream) : PrintTable(random, precision, selection, stream);
    if (!status.ok()) std::fprintf(stderr, "codec-bench: %s\n", status.message().c_str());
    return status.ok() ? 0 : 1;
  }
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  Check(cudaEventCreate(&begin), "event");
  Check(cudaEventCreate(&end), "event");
  Check(cudaEventRecord(begin, stream), "event");
  const auto codec = LoadCodec(random, precision, most, stream);
  if (!codec.ok()) {
    std::fprintf(stderr, "codec-bench: %s\n", codec.status().message().c_str());
    return 1;
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
