// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_BENCH_CUBLAS_LT_H_
#define QTTS_CUDA_BENCH_CUBLAS_LT_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>

#include "qtts/status.h"
#include "runtime/device_memory.h"

namespace qtts::cuda {

// NVIDIA's library of matrix products, opened at run time: the column beside the project's own products. BF16 operands,
// one algorithm a shape for all numbers of rows, without splits of the columns. Its sums have another order than the
// project's, so it makes other bits.
class CublasLt {
 public:
  // kUnsupported with the reason where the library cannot be opened, or the build had no header of it.
  static Result<std::unique_ptr<CublasLt>> Open();
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  // y [rows][outputs] in BF16 = x [rows][columns] weights [outputs][columns].
  class Product {
   public:
    ~Product();
    Product(const Product&) = delete;
    Product& operator=(const Product&) = delete;
    Status Run(int64_t rows, const void* weights, const void* x, void* y, cudaStream_t stream) const;
    const std::string& algorithm() const;

   private:
    friend class CublasLt;
    struct Impl;
    explicit Product(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
  };
  // Chooses the algorithm: the library's first one for `most_rows` that gives a row the same bits among 1, 16, 256 and
  // `most_rows` rows of `x`. Changes y, of most_rows rows. kUnsupported if none does.
  Result<std::unique_ptr<Product>> Pin(int64_t most_rows, int outputs, int columns, const void* weights, const void* x,
                                       void* y);

 private:
  struct Library;
  explicit CublasLt(std::unique_ptr<Library> library);
  std::unique_ptr<Library> library_;
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_BENCH_CUBLAS_LT_H_
