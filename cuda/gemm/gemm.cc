// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gemm/gemm.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "gemm/cluster.h"
#include "gemm/f32.h"
#include "gemm/few.h"
#include "gemm/library.h"
#include "gemm/tiles.h"
#include "gemm/warpgroup.h"
#include "gemm/wide.h"

// Choice of a product's kernel, by time only: all give the same bits. Each kernel's header describes its use.
namespace qtts::cuda {
namespace {

using gemm::WarpgroupTile;

std::optional<WarpgroupTile> WarpgroupTileOf(GemmShape shape) {
  switch (shape) {
    case GemmShape::kWarpgroup64:
      return WarpgroupTile{1, 64, WarpgroupTile::Blocks::kAlone};
    case GemmShape::kWarpgroup64Split:
      return WarpgroupTile{1, 64, WarpgroupTile::Blocks::kSplit};
    case GemmShape::kWarpgroup128:
      return WarpgroupTile{2, 128, WarpgroupTile::Blocks::kAlone};
    case GemmShape::kWarpgroup128Split:
      return WarpgroupTile{2, 128, WarpgroupTile::Blocks::kSplit};
    default:
      return std::nullopt;
  }
}

std::optional<gemm::RowTile> RowTileOf(GemmShape shape) {
  constexpr gemm::RowTile kTiles[] = {{128, 128}, {128, 64}, {64, 64}};
  const auto i = static_cast<size_t>(shape) - static_cast<size_t>(GemmShape::kTiles128x128);
  return i < std::size(kTiles) ? std::optional(kTiles[i]) : std::nullopt;
}

// For many rows, if the numbers ask for it: the fastest of those that were measured, null where the kernels for few
// rows are as fast.
std::optional<GemmShape> ChooseWarpgroupShape(const Matrix& matrix, const GemmRows& rows,
                                              const ProductNumbers& numbers) {
  const int64_t weight_rows = (matrix.kind == GemmKind::kNormGated ? 2 : 1) * int64_t{matrix.outputs};
  const auto blocks = [&](int64_t tile) { return (weight_rows + tile - 1) / tile * ((rows.rows + tile - 1) / tile); };
  if (blocks(128) >= numbers.large_tiles) return GemmShape::kWarpgroup128;
  const bool few_blocks = blocks(64) <= numbers.few_tiles;
  if (matrix.kind != GemmKind::kAdd) return few_blocks ? std::nullopt : std::optional(GemmShape::kWarpgroup64);
  if (rows.rows > 128) return GemmShape::kWarpgroup64;
  if (rows.rows > 64 && 8 * blocks(128) <= numbers.split_blocks) return GemmShape::kWarpgroup128Split;
  return std::nullopt;
}

// The same for matrices in pieces.
std::optional<GemmShape> ChooseTiles(const Matrix& matrix, int64_t rows, const ProductNumbers& numbers) {
  if (matrix.pieces == nullptr || !gemm::HasTiles(matrix)) return std::nullopt;
  if (rows < kManyRows || rows % gemm::kTileRows != 0) return std::nullopt;
  const int64_t weight_rows = (matrix.kind == GemmKind::kNormGated ? 2 : 1) * int64_t{matrix.outputs};
  const auto tiles = [&](int64_t tile_rows, int64_t outputs) {
    return weight_rows % outputs == 0 ? weight_rows / outputs * ((rows + tile_rows - 1) / tile_rows) : 0;
  };
  if (tiles(128, 128) >= numbers.large_tiles) return GemmShape::kTiles128x128;
  if (tiles(128, 64) >= numbers.large_tiles) return GemmShape::kTiles128x64;
  if (tiles(64, 64) >= numbers.small_tiles) return GemmShape::kTiles64x64;
  return std::nullopt;
}

}  // namespace

bool TakesPieces(const Matrix& matrix, int64_t rows, const ProductNumbers& numbers) {
  return numbers.many_rows == ManyRowsProducts::kWarpgroup && ChooseTiles(matrix, rows, numbers).has_value();
}

bool HasWarpgroupProducts() {
  constexpr int kColumns = 1024;
  return gemm::CanRunWarpgroup(*WarpgroupTileOf(GemmShape::kWarpgroup64), GemmKind::kAdd, kColumns);
}

bool CanRun(GemmShape shape, const Matrix& matrix, const GemmRows& rows, const ProductNumbers& numbers) {
  // More shared memory than this would reduce the number of thread blocks per SM.
  constexpr size_t kMaxStage = size_t{64} << 10;
  switch (shape) {
    case GemmShape::kOneRow:
      return rows.rows == 1 && gemm::FewStageBytes(matrix.chunks(), 1) <= kMaxStage;
    case GemmShape::k8Rows:
      return gemm::FewStageBytes(matrix.chunks(), std::min<int64_t>(rows.rows, 8)) <= kMaxStage;
    case GemmShape::kWide16:
    case GemmShape::kWide32:
    case GemmShape::kWide64:
      return !gemm::HasNorm(matrix.kind) || rows.normed.x != nullptr;
    case GemmShape::kCluster:
      return matrix.kind == GemmKind::kAdd &&
             gemm::CanRunCluster(matrix.outputs, matrix.chunks(), rows.rows, numbers.clusters_at_once);
    case GemmShape::kWarpgroup64:
    case GemmShape::kWarpgroup64Split:
    case GemmShape::kWarpgroup128:
    case GemmShape::kWarpgroup128Split:
      return rows.normed.x != nullptr && rows.normed.columns >= matrix.columns &&
             gemm::CanRunWarpgroup(*WarpgroupTileOf(shape), matrix.kind, matrix.columns);
    default:
      if (const auto tile = RowTileOf(shape)) return gemm::CanRunTiles(*tile, matrix, rows);
      return true;
  }
}

// Few rows: the fastest shape for one stream. Clusters, where supported, are faster if other shapes need several waves
// of thread blocks or have many columns. The time of each other shape is nearly linear in its number of blocks, so only
// the intersections of these lines matter.
GemmShape ChooseShape(const Matrix& matrix, const GemmRows& rows, const ProductNumbers& numbers) {
  const auto can_run = [&](GemmShape shape) { return CanRun(shape, matrix, rows, numbers); };
  if (numbers.many_rows == ManyRowsProducts::kWarpgroup && rows.rows >= kManyRows) {
    const std::optional<GemmShape> tiles = ChooseTiles(matrix, rows.rows, numbers);
    if (tiles.has_value() && can_run(*tiles)) return *tiles;
    const std::optional<GemmShape> shape = ChooseWarpgroupShape(matrix, rows, numbers);
    if (shape.has_value() && can_run(*shape)) return *shape;
  }
  if (can_run(GemmShape::kOneRow)) return GemmShape::kOneRow;
  const bool one_round = matrix.tiles() * ((rows.rows + 7) / 8) <= numbers.blocks_at_once;
  const bool quick = one_round && rows.rows <= numbers.quick_rows && matrix.columns <= numbers.quick_columns;
  if (rows.rows > 4 && !quick && can_run(GemmShape::kCluster)) return GemmShape::kCluster;
  if ((rows.rows <= 4 || one_round) && can_run(GemmShape::k8Rows)) return GemmShape::k8Rows;
  if (rows.rows <= 4 || !can_run(GemmShape::kWide16)) return GemmShape::k16Rows;
  struct Choice {
    GemmShape shape;
    int64_t block_rows;
    ProductNumbers::Line line;
  };
  const Choice choices[] = {{GemmShape::kWide16, 16, numbers.wide16},
                            {GemmShape::kWide32, 32, numbers.wide32},
                            {GemmShape::kWide64, 64, numbers.wide64}};
  const auto time = [&](const Choice& choice) {
    return choice.line.base + choice.line.per_block * WideBlocks(matrix, rows.rows, choice.block_rows);
  };
  const Choice* const best = std::min_element(std::begin(choices), std::end(choices),
                                              [&](const Choice& a, const Choice& b) { return time(a) < time(b); });
  return best->shape;
}

int64_t WideBlocks(const Matrix& matrix, int64_t rows, int64_t block_rows) {
  const int64_t weight_rows = (matrix.kind == GemmKind::kNormGated ? 2 : 1) * int64_t{matrix.outputs};
  return (weight_rows + gemm::kWideOutputs - 1) / gemm::kWideOutputs * ((rows + block_rows - 1) / block_rows);
}

void Gemm(const Launcher& launch, Precision precision, const Matrix& matrix, const GemmRows& r) {
  const gemm::GemmArguments a = {matrix.data, matrix.bias, matrix.outputs, matrix.columns, matrix.chunks(), r.x,
                                 r.x_stride,  r.y,         r.y_stride,     r.rows,         r.norm,          r.eps,
                                 r.live,      nullptr,     r.x_in_pieces,  r.y_in_pieces};
  if (precision == Precision::kF32) return gemm::RunF32(launch, matrix.kind, matrix.tiles(), a);
  if (matrix.library != nullptr) return gemm::RunLibrary(launch, matrix, a, r.normed);
  const GemmShape shape = r.shape == GemmShape::kBest ? ChooseShape(matrix, r, launch.numbers->products) : r.shape;
  if (const auto tile = RowTileOf(shape)) {
    gemm::GemmArguments with_pieces = a;
    with_pieces.weights = matrix.pieces;
    return gemm::RunTiles(launch, matrix.kind, *tile, with_pieces, r.normed);
  }
  if (r.x_in_pieces || r.y_in_pieces) {
    launch.error = cudaErrorInvalidValue;  // TakesPieces() is false
    return;
  }
  if (const auto tile = WarpgroupTileOf(shape)) return gemm::RunWarpgroup(launch, matrix.kind, *tile, a, r.normed);
  switch (shape) {
    case GemmShape::kWide16:
      return gemm::RunWide(launch, matrix.kind, a, 16, r.normed);
    case GemmShape::kWide32:
      return gemm::RunWide(launch, matrix.kind, a, 32, r.normed);
    case GemmShape::kWide64:
      return gemm::RunWide(launch, matrix.kind, a, 64, r.normed);
    case GemmShape::kCluster:
      return gemm::RunCluster(launch, a);
    default:
      return gemm::RunFew(launch, matrix.kind, matrix.tiles(), a, shape);
  }
}

}  // namespace qtts::cuda
