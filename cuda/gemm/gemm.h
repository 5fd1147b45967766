// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_GEMM_GEMM_H_
#define QTTS_CUDA_GEMM_GEMM_H_

#include <cstddef>
#include <cstdint>

#include "checkpoint/dtype.h"
#include "gemm/int8.h"
#include "rules/chunk.h"
#include "rules/precision.h"
#include "runtime/launch.h"

// Products of weight matrices with few rows of activations: the frame's work. A row's result has one
// fixed order of additions, whatever rows ride with it: a batch equals its members, and a prompt
// computed together equals the same rows one by one, bit for bit.
//
// In BF16 the weights go through the tensor cores, 16 x 16 of them against 8 rows, with F32
// accumulators; one block owns a few outputs and its eight warps share the columns. Weights lie
// packed in the order in which lanes load them, and the first loads of a block go out before the
// previous kernel has ended. With many rows a block owns more outputs and more rows, so that weights are read
// once; from compute capability 9.0 on a cluster of blocks may own them, one for each warp's share of the columns. In
// F32 the same products run on the plain cores.
namespace qtts::cuda {

class LibraryProduct;

// Input format and epilogue of a product.
enum class GemmKind {
  kNormStore,  // y = W rmsnorm(x) + b; x and y F32
  kNormGated,  // y = silu(W_gate rmsnorm(x)) * (W_up rmsnorm(x)); x F32, y in the precision's type
  kAdd,        // y += W x + b; x in the precision's type, y F32
  kStore,      // y = W x + b; both in the precision's type
  kStoreSilu,  // y = silu(W x + b); same
};

// Outputs that one block computes.
constexpr int TileOutputs(GemmKind kind) { return kind == GemmKind::kAdd ? 8 : 16; }

// A packed weight matrix. For kNormGated, `outputs` counts the pairs, and a tile has 8 gates, then
// their 8 ups.
struct Matrix {
  GemmKind kind = GemmKind::kStore;
  void* data = nullptr;
  const float* bias = nullptr;  // [outputs], or none
  int outputs = 0;
  int columns = 0;
  // The weights once more, in the order kSwizzled (swizzled.h), for products of many rows (tiles.h); or none.
  const void* swizzled = nullptr;
  // If set, all products of the matrix are the library's, and `data` is plain rows (library.h).
  const LibraryProduct* library = nullptr;
  WeightForm form = WeightForm::kPlain;  // of `data`
  // For kInt8: scratch memory of plain_bytes(kBF16), which matrices may share if their products follow one another on
  // one stream. Without it all products are those of few rows.
  void* unpacked = nullptr;

  int chunks() const { return Padded(columns) / kChunk; }
  int weight_rows() const { return kind == GemmKind::kNormGated ? 2 * outputs : outputs; }  // without padding
  int tile() const { return kind == GemmKind::kNormGated ? 8 : TileOutputs(kind); }         // of `outputs`
  int tiles() const { return (outputs + tile() - 1) / tile(); }
  // Returns the bytes of `data`.
  size_t bytes(Precision precision) const {
    return form == WeightForm::kInt8 ? int8_layout().bytes() : plain_bytes(precision);
  }
  size_t plain_bytes(Precision precision) const {
    return static_cast<size_t>(tiles()) * static_cast<size_t>(TileOutputs(kind)) *
           static_cast<size_t>(Padded(columns)) * ElementBytes(precision);
  }
  gemm::Int8Layout int8_layout() const { return {tiles(), TileOutputs(kind) / 8, chunks()}; }
};

// Rows of a tile that a source matrix fills.
enum class PackPart { kWhole, kGate, kUp };

// Packs rows of `type` [rows][matrix.columns], lying on the device, into outputs [first, first + rows)
// of `matrix`, whose memory was zero before, in the matrix's form. kInt8 needs kBF16.
void Pack(const Launcher& launch, Precision precision, const Matrix& matrix, PackPart part, DType type,
          const void* source, int64_t first, int64_t rows);

// Converts rows of `type` [rows][columns] to the precision's type, [rows][stride]; elements between columns and stride
// are left alone.
void ConvertRows(const Launcher& launch, Precision precision, DType type, const void* source, int64_t rows,
                 int64_t columns, void* target, int64_t stride);

// How rows share blocks. All shapes give the same bits.
enum class GemmShape {
  kBest,
  kFew,     // one row, or eight, of a block, which computes the outputs of one packed tile (few.h)
  kWide16,  // rows of a block, which computes 32 outputs (wide.h)
  kWide32,
  kWide64,
  kCluster,  // for kAdd: eight blocks share the columns of up to 64 rows and of 64 or 128 outputs (cluster.h)
  // With the warpgroup's matrix instruction (tiles.h), on compute capability 9.0, for matrices that have a swizzled
  // copy: rows and outputs of a block.
  kTiles128,
  kTiles64,
  // cuBLASLt (library.h), for matrices that it was given: these have no other shape. Other bits.
  kLibrary,
};

// Scratch for normed rows, BF16 [rows][whole chunks of columns], and the factor still to be applied to each, [rows].
struct NormedRows {
  void* x = nullptr;
  float* factors = nullptr;
  // Columns that there is room for in each row, and in rows beyond the last up to a multiple of 8. 0: for those of the
  // norm kinds. Tiles need it for all kinds.
  int columns = 0;
  float* sums = nullptr;  // for matrices with a `library`: [rows][weight rows]
};

struct GemmRows {
  const void* x = nullptr;  // [rows][x_stride], zeros between columns and whole chunks
  int x_stride = 0;
  void* y = nullptr;  // [rows][y_stride]
  int y_stride = 0;
  int64_t rows = 0;
  const float* norm = nullptr;  // [whole chunks of columns], for the norm kinds
  float eps = 0;
  // Nothing is done where this device word is 0; none: always done. Written before the previous kernel.
  const int* live = nullptr;
  // For the norm kinds in BF16, used when there are more than 8 rows: without it they are normed by every block.
  NormedRows normed;
  // In the order kSwizzled (swizzled.h), where TakesSwizzled(): x of kAdd, y of kNormGated.
  bool x_swizzled = false;
  bool y_swizzled = false;
  GemmShape shape = GemmShape::kBest;  // in BF16; another one for tests and measurements
};

// Returns true if the current device and the build have tiles.
bool HasWarpgroupProducts();
// Returns true if the product of `rows` rows that kBest selects reads and writes rows swizzled (GemmRows::x_swizzled,
// y_swizzled). It depends on the matrix and their number alone.
bool TakesSwizzled(const Matrix& matrix, int64_t rows, const ProductNumbers& numbers);
// Returns true if `shape` is supported.
bool CanRun(GemmShape shape, const Matrix& matrix, const GemmRows& rows, const ProductNumbers& numbers);
// Returns the shape that kBest selects on a device with these numbers.
GemmShape ChooseShape(const Matrix& matrix, const GemmRows& rows, const ProductNumbers& numbers);
// Returns the blocks of the wide shapes, of `block_rows` rows each.
int64_t WideBlocks(const Matrix& matrix, int64_t rows, int64_t block_rows);

// Rows up to which a matrix of 8-bit weights is read once for every eight rows. More rows bring its values to
// `unpacked` first, which reads and writes 2.5 bytes a weight.
constexpr int64_t kMaxInt8Rows = 32;
// Returns true if a product of a matrix of 8-bit weights reads the codes, false if it reads `unpacked`.
bool ReadsInt8(const Matrix& matrix, const GemmRows& rows);

void Gemm(const Launcher& launch, Precision precision, const Matrix& matrix, const GemmRows& rows);

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_GEMM_GEMM_H_
