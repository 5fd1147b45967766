// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_GEMM_CUBLAS_LT_H_
#define QTTS_CUDA_GEMM_CUBLAS_LT_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>

#include "qtts/status.h"

namespace qtts::cuda {

// A product of one shape with its algorithm, which is the same for any number of rows. It refers to its CublasLt, which
// must live longer. Run() may be captured in a graph; calls on several streams at once share a workspace, so there
// must be none.
class LibraryProduct {
 public:
  ~LibraryProduct();
  LibraryProduct(const LibraryProduct&) = delete;
  LibraryProduct& operator=(const LibraryProduct&) = delete;

  // Enqueues y [rows][y_stride] in F32 = x [rows][x_stride] weights [outputs][columns], both BF16 in device memory, or
  // where it `adds`, y += that.
  Status Run(int64_t rows, const void* weights, const void* x, int64_t x_stride, float* y, int64_t y_stride, bool adds,
             cudaStream_t stream) const;
  int outputs() const;
  int columns() const;
  // Returns its number and tile, for logs.
  const std::string& algorithm() const;

 private:
  friend class CublasLt;
  struct Impl;
  explicit LibraryProduct(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// NVIDIA's library of matrix products, opened at run time, so that a machine without it lacks this class alone. Its
// sums have another order than those of the project's own kernels (rules/product.cuh), so they are other bits.
//
// Not thread-safe.
class CublasLt {
 public:
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // of device memory

  // Opens the library for the current device. kUnsupported, with the reason and what to install, where there is no
  // library of CUDA 12 or 13 or the build had no header of it.
  static Result<std::unique_ptr<CublasLt>> Open();
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  // Chooses the algorithm: of those that the library recommends for `rows`, without splits of the columns, the first
  // that gives a row of `x` [max_rows][columns] the same bits in calls of 1, 16, 256 and max_rows rows and at several
  // places. It is not chosen by time, so that a seed gives the same codes again. Changes sums [max_rows][outputs].
  // kUnsupported if none does. Waits for the device.
  Result<std::unique_ptr<LibraryProduct>> Pin(int64_t rows, int64_t max_rows, int outputs, int columns,
                                              const void* weights, const void* x, float* sums);

 private:
  friend class LibraryProduct;
  struct Library;
  explicit CublasLt(std::unique_ptr<Library> library);
  std::unique_ptr<Library> library_;
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_GEMM_CUBLAS_LT_H_
