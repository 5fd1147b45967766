// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gemm/gemm.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>

#include "gemm/cluster.h"
#include "gemm/f32.h"
#include "gemm/few.h"
#include "gemm/library.h"
#include "gemm/product.h"
#include "gemm/tiles.h"
#include "gemm/unpack_int8.h"
#include "gemm/wide.h"
#include "runtime/device.h"
#include "runtime/succeeds.h"

// The ways to compute a product, and the choice between them, by time only: all but the library's give the same bits.
// Each kernel's header describes its use.
namespace qtts::cuda {
namespace {

using gemm::GemmArguments;
using gemm::Product;

GemmArguments ArgumentsOf(const Matrix& matrix, const GemmRows& r) {
  return {matrix.data, matrix.bias, matrix.outputs, matrix.columns, matrix.chunks(), r.x,
          r.x_stride,  r.y,         r.y_stride,     r.rows,         r.norm,          r.eps,
          r.live,      nullptr,     r.x_swizzled,   r.y_swizzled};
}

// Packed weights and plain rows, which most ways read.
bool ReadsPlainRows(const Matrix& matrix, const GemmRows& rows) {
  return matrix.library == nullptr && !rows.x_swizzled && !rows.y_swizzled;
}

// More shared memory than this would reduce the number of thread blocks per SM.
constexpr size_t kMaxStage = size_t{64} << 10;

constexpr Product FewProduct(const char* name) {
  return {GemmShape::kFew, name, false,
          [](const Matrix& matrix, const GemmRows& rows, const ProductNumbers&) {
            return ReadsPlainRows(matrix, rows) &&
                   gemm::FewStageBytes(matrix.chunks(), std::min<int64_t>(rows.rows, gemm::kTileRows)) <= kMaxStage;
          },
          [](const Launcher& launch, const Matrix& matrix, const GemmRows& rows) {
            gemm::RunFew(launch, matrix.kind, matrix.tiles(), ArgumentsOf(matrix, rows));
          }};
}

template <GemmShape kShape, int kBlockRows>
constexpr Product WideProduct(const char* name) {
  return {kShape, name, false,
          [](const Matrix& matrix, const GemmRows& rows, const ProductNumbers&) {
            return ReadsPlainRows(matrix, rows) && (!gemm::HasNorm(matrix.kind) || rows.normed.x != nullptr);
          },
          [](const Launcher& launch, const Matrix& matrix, const GemmRows& rows) {
            gemm::RunWide(launch, matrix.kind, ArgumentsOf(matrix, rows), kBlockRows, rows.normed);
          }};
}

constexpr Product ClusterProduct(const char* name) {
  return {GemmShape::kCluster, name, false,
          [](const Matrix& matrix, const GemmRows& rows, const ProductNumbers& numbers) {
            return ReadsPlainRows(matrix, rows) && matrix.kind == GemmKind::kAdd &&
                   gemm::CanRunCluster(matrix.outputs, matrix.chunks(), rows.rows, numbers.clusters_at_once);
          },
          [](const Launcher& launch, const Matrix& matrix, const GemmRows& rows) {
            gemm::RunCluster(launch, ArgumentsOf(matrix, rows));
          }};
}

template <GemmShape kShape, int kSize>
constexpr Product TilesProduct(const char* name) {
  return {kShape, name, true,
          [](const Matrix& matrix, const GemmRows& rows, const ProductNumbers&) {
            return matrix.library == nullptr && gemm::CanRunTiles(kSize, matrix, rows);
          },
          [](const Launcher& launch, const Matrix& matrix, const GemmRows& rows) {
            gemm::RunTiles(launch, matrix, kSize, ArgumentsOf(matrix, rows), rows.normed);
          }};
}

constexpr Product LibraryProductRow(const char* name) {
  return {GemmShape::kLibrary, name, false,
          [](const Matrix& matrix, const GemmRows& rows, const ProductNumbers&) {
            return matrix.library != nullptr && !rows.x_swizzled && !rows.y_swizzled && rows.normed.sums != nullptr &&
                   (!gemm::HasNorm(matrix.kind) || rows.normed.x != nullptr);
          },
          [](const Launcher& launch, const Matrix& matrix, const GemmRows& rows) {
            gemm::RunLibrary(launch, matrix, ArgumentsOf(matrix, rows), rows.normed);
          }};
}

constexpr std::array kProducts = {
    FewProduct("few"),
    WideProduct<GemmShape::kWide16, 16>("wide 16"),
    WideProduct<GemmShape::kWide32, 32>("wide 32"),
    WideProduct<GemmShape::kWide64, 64>("wide 64"),
    ClusterProduct("cluster"),
    TilesProduct<GemmShape::kTiles128, 128>("tiles 128"),
    TilesProduct<GemmShape::kTiles64, 64>("tiles 64"),
    LibraryProductRow("library"),
};

// Returns whether each product stands where ProductOf() looks for its shape.
constexpr bool AreInOrder(const auto& products) {
  for (size_t i = 0; i < products.size(); ++i) {
    if (static_cast<size_t>(products[i].shape) != static_cast<size_t>(GemmShape::kFew) + i) return false;
  }
  return products.back().shape == GemmShape::kLibrary;
}
static_assert(AreInOrder(kProducts));

// The fastest tiles for many rows of a matrix with swizzled weights; none where the kernels for few rows are as fast.
// Graphs have rows in steps of 8, up to which scratch memory is padded.
std::optional<GemmShape> ChooseTiles(const Matrix& matrix, int64_t rows, const ProductNumbers& numbers) {
  if (numbers.many_rows != ManyRowsProducts::kWarpgroup) return std::nullopt;
  if (matrix.swizzled == nullptr || !gemm::HasTiles(matrix)) return std::nullopt;
  if (rows < kManyRows || rows % gemm::kTileRows != 0) return std::nullopt;
  const auto tiles = [&](int size) {
    return matrix.weight_rows() % size == 0 ? matrix.weight_rows() / size * ((rows + size - 1) / size) : 0;
  };
  if (tiles(128) >= numbers.large_tiles) return GemmShape::kTiles128;
  // The clusters of a product of up to kManyRows rows all run at once.
  if (tiles(64) >= (rows > kManyRows ? numbers.small_tiles / 2 : numbers.small_tiles)) return GemmShape::kTiles64;
  return std::nullopt;
}

// Records that TakesSwizzled() is false for swizzled rows: an error of the caller, or a lost device that denies what a
// kernel needs.
void RefuseOrder(const Launcher& launch) {
  const cudaError_t lost = cudaGetLastError();
  if (launch.error == cudaSuccess) launch.error = lost != cudaSuccess ? lost : cudaErrorInvalidValue;
}

// Products of a matrix of 8-bit weights: from the codes for few rows, else from the values in scratch memory.
void RunInt8(const Launcher& launch, const Matrix& matrix, const GemmRows& rows) {
  if (rows.x_swizzled || rows.y_swizzled) {
    RefuseOrder(launch);
    return;
  }
  if (ReadsInt8(matrix, rows)) {
    return gemm::RunFewInt8(launch, matrix.kind, matrix.tiles(), ArgumentsOf(matrix, rows));
  }
  gemm::UnpackInt8(launch, matrix, rows.live);
  Matrix plain = matrix;
  plain.form = WeightForm::kPlain;
  plain.data = matrix.unpacked;
  // Kernels load weights before they wait for the kernel before them.
  const Launcher after(launch.stream, launch.numbers);
  Gemm(after, Precision::kBF16, plain, rows);
  if (launch.error == cudaSuccess) launch.error = after.error;
}

}  // namespace

bool TakesSwizzled(const Matrix& matrix, int64_t rows, const ProductNumbers& numbers) {
  return ChooseTiles(matrix, rows, numbers).has_value();
}

bool HasWarpgroupProducts() {
  const DeviceDescription* device = nullptr;
  return Succeeds(DescribeDevice(&device)) && device->CanRunWarpgroups();
}

const Product& gemm::ProductOf(GemmShape shape) {
  return kProducts[static_cast<size_t>(shape) - static_cast<size_t>(GemmShape::kFew)];
}

bool CanRun(GemmShape shape, const Matrix& matrix, const GemmRows& rows, const ProductNumbers& numbers) {
  if (shape == GemmShape::kBest) shape = ChooseShape(matrix, rows, numbers);
  return gemm::ProductOf(shape).covers(matrix, rows, numbers);
}

// Few rows: the fastest shape for one stream. Clusters, where supported, are faster if other shapes need several waves
// of thread blocks or have many columns. The time of each other shape is nearly linear in its number of blocks, so only
// the intersections of these lines matter.
GemmShape ChooseShape(const Matrix& matrix, const GemmRows& rows, const ProductNumbers& numbers) {
  const auto can_run = [&](GemmShape shape) { return CanRun(shape, matrix, rows, numbers); };
  if (matrix.library != nullptr) return GemmShape::kLibrary;
  const std::optional<GemmShape> tiles = ChooseTiles(matrix, rows.rows, numbers);
  if (tiles.has_value() && can_run(*tiles)) return *tiles;
  if (rows.rows == 1 && can_run(GemmShape::kFew)) return GemmShape::kFew;
  const bool one_round = matrix.tiles() * ((rows.rows + 7) / 8) <= numbers.blocks_at_once;
  const bool quick = one_round && rows.rows <= numbers.quick_rows && matrix.columns <= numbers.quick_columns;
  if (rows.rows > 4 && !quick && can_run(GemmShape::kCluster)) return GemmShape::kCluster;
  if ((rows.rows <= 4 || one_round) && can_run(GemmShape::kFew)) return GemmShape::kFew;
  // Without memory for normed rows a product with a norm has this kernel only.
  if (!can_run(GemmShape::kWide16)) return GemmShape::kFew;
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
  return (matrix.weight_rows() + gemm::kWideOutputs - 1) / gemm::kWideOutputs * ((rows + block_rows - 1) / block_rows);
}

bool ReadsInt8(const Matrix& matrix, const GemmRows& rows) {
  if (matrix.unpacked == nullptr || rows.shape == GemmShape::kFew) return true;
  const size_t stage = gemm::FewStageBytes(matrix.chunks(), std::min<int64_t>(rows.rows, gemm::kTileRows));
  return rows.shape == GemmShape::kBest && rows.rows <= kMaxInt8Rows && stage <= kMaxStage;
}

void Gemm(const Launcher& launch, Precision precision, const Matrix& matrix, const GemmRows& r) {
  if (precision == Precision::kF32) return gemm::RunF32(launch, matrix.kind, matrix.tiles(), ArgumentsOf(matrix, r));
  if (matrix.form == WeightForm::kInt8) return RunInt8(launch, matrix, r);
  const ProductNumbers& numbers = launch.numbers->products;
  const Product& product = gemm::ProductOf(r.shape == GemmShape::kBest ? ChooseShape(matrix, r, numbers) : r.shape);
  if ((r.x_swizzled || r.y_swizzled) && !product.takes_swizzled) {
    RefuseOrder(launch);
    return;
  }
  product.run(launch, matrix, r);
}

}  // namespace qtts::cuda
