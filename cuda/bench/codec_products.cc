// SPDX-License-Identifier: LGPL-2.1-or-later
#include "codec_products.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <variant>

#include "codec/gemm_choice.h"
#include "codec/tile_table.h"
#include "runtime/cuda_error.h"
#include "runtime/device_table.h"

namespace qtts {
namespace {

constexpr size_t kColdBytes = size_t{512} << 20;  // more than a cache holds

size_t WeightBytes(const cuda::codec::GemmStep& product) {
  const cuda::codec::GemmGeometry& geometry = product.args.geometry;
  return size_t{2} * cuda::codec::kTileRows * cuda::codec::kChannelBlock * static_cast<size_t>(geometry.tiles) *
         static_cast<size_t>(geometry.chunks) * static_cast<size_t>(product.args.weights.planes);
}

}  // namespace

Result<std::unique_ptr<Products>> Products::Create(const testing::RandomCodec& random, cuda::CodecPrecision precision,
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

void Products::SetStreams(int n) {
  traits.processors = processors_;
  if (n > numbers_.few_streams && n <= numbers_.some_streams) {
    traits.processors = std::min(processors_, numbers_.processors_of_some);
  }
  for (cuda::codec::GemmStep& product : list) product.args.geometry.columns = n * product.args.x.rows;
}

Result<double> Products::Time(const cuda::codec::GemmStep& product, const cuda::codec::GemmTile& tile, double bound,
                              cudaStream_t stream) const {
  const bool by_warpgroups = tile.form == cuda::codec::GemmForm::kWarpgroup;
  return TimeRuns(WeightBytes(product), bound, stream, [&](const void* weights) {
    cuda::codec::GemmArgs args = product.args;
    (by_warpgroups ? args.weights.warpgroup : args.weights.data) = weights;
    return cuda::codec::LaunchGemm(args, product.x_planes, tile, traits, stream);
  });
}

Result<double> Products::TimeUnit(const cuda::codec::GemmStep& first, const cuda::codec::GemmStep& second,
                                  cudaStream_t stream) const {
  const size_t first_bytes = WeightBytes(first);
  return TimeRuns(first_bytes + WeightBytes(second), kNoBound, stream, [&](const void* weights) {
    const cuda::codec::UnitWeights unit = {weights, static_cast<const char*>(weights) + first_bytes};
    return cuda::codec::LaunchUnit(first.args, second.args, unit, traits, stream);
  });
}

Result<double> Products::TimeRuns(size_t bytes, double bound, cudaStream_t stream,
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

bool IsSame(const Tile& a, const Tile& b) { return a.form == b.form && a.columns == b.columns && a.tiles == b.tiles; }

std::string NameOf(const Tile& tile) {
  constexpr const char* kLetters = "NCWGS";
  return std::string(1, kLetters[static_cast<int>(tile.form)]) + "(" + std::to_string(tile.columns) + ", " +
         std::to_string(tile.tiles) + ")";
}

Kind KindOf(const cuda::codec::GemmStep& product) {
  const cuda::codec::GemmGeometry& geometry = product.args.geometry;
  return {product.args.weights.warpgroup != nullptr ? 1 : 0, product.args.x.rows,
          geometry.tiles * cuda::codec::kTileRows, geometry.chunks * cuda::codec::kChannelBlock, geometry.taps};
}

bool Selection::Has(const cuda::codec::GemmStep& product) const {
  return rows.empty() || std::find(rows.begin(), rows.end(), product.args.x.rows) != rows.end();
}

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

const cuda::codec::GemmStep* SecondOfUnit(const Products& products, size_t at) {
  const cuda::codec::GemmStep& first = products.list[at];
  if (first.unit.first == nullptr || at + 1 == products.list.size()) return nullptr;
  const cuda::codec::GemmStep* const second = &products.list[at + 1];
  Tile tile;
  return UnitTakes(first.args, second->args, first.unit, &tile, products.traits) ? second : nullptr;
}

void Row::Add(int streams, const Tile& tile) {
  if (!tiles.empty() && IsSame(tiles.back().second, tile)) tiles.pop_back();
  tiles.emplace_back(streams, tile);
}

void Row::AddUnit(int streams, bool is_unit) {
  if (!is_unit) {
    unit_streams = 0;
  } else if (unit_streams == 0) {
    unit_streams = streams;
  }
}

void Row::Print() const {
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

}  // namespace qtts
