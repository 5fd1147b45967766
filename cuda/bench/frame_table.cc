// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "codec/gemm_choice.h"
#include "codec/tile_table.h"
#include "codec_frames.h"
#include "codec_tables.h"
#include "runtime/device_table.h"

// The kernels with which a whole frame is fastest, changing one kind of product at a time.
namespace qtts {
namespace {

constexpr int kReplays = 100;

using Table = std::vector<cuda::codec::ProductTiles>;

// The kernel of a kind of product: its tile, or one with the next product.
struct Choice {
  Tile tile;
  bool is_unit = false;
};

bool IsSameChoice(const Choice& a, const Choice& b) {
  return a.is_unit == b.is_unit && (a.is_unit || IsSame(a.tile, b.tile));
}

std::string NameOfChoice(const Choice& choice) { return choice.is_unit ? "unit" : NameOf(choice.tile); }

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
  // One turn that is not timed.
  QTTS_RETURN_IF_ERROR(base.Launch(stream));
  QTTS_RETURN_IF_ERROR(other.Launch(stream));
  int launches = 0;
  QTTS_ASSIGN_OR_RETURN(const std::vector<float> all, TimesOf(2 * turns, stream, [&] {
                          return (launches++ % 2 == 0 ? base : other).Launch(stream);
                        }));
  std::array<std::vector<float>, 2> times;
  for (size_t i = 0; i < all.size(); ++i) times[i % 2].push_back(all[i]);
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
    return cuda::Graph::Capture(stream, [&] { return arrays.Decode(codec, n, stream); });
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
        if (IsSameChoice(choice, sought.choice)) {
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
                    NameOfChoice(sought.choice).c_str(), NameOfChoice(choice).c_str(), compared.base, compared.other,
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

}  // namespace

Status PrintWholeTable(testing::RandomCodec* random, cuda::CodecPrecision precision, int most,
                       const Selection& selection, cudaStream_t stream) {
  QTTS_ASSIGN_OR_RETURN(const std::unique_ptr<cuda::Codec> codec, LoadCodec(*random, precision, most, stream));
  QTTS_ASSIGN_OR_RETURN(const std::unique_ptr<Products> products, Products::Create(*random, precision, most));
  QTTS_ASSIGN_OR_RETURN(const Arrays arrays, Arrays::Create(*codec, random, most));
  std::map<Kind, Row> rows;
  for (const int n : selection.streams) {
    QTTS_RETURN_IF_ERROR(Search(codec.get(), products.get(), arrays, n, selection, &rows, stream));
  }
  for (const auto& [kind, row] : rows) row.Print();
  return Status::Ok();
}

}  // namespace qtts
