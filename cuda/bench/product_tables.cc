// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "codec/gemm_choice.h"
#include "codec/tile_table.h"
#include "codec_tables.h"
#include "runtime/device_table.h"

// The kernels of each product alone.
namespace qtts {

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

namespace {

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

}  // namespace

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

}  // namespace qtts
