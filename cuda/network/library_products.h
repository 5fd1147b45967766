// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_NETWORK_LIBRARY_PRODUCTS_H_
#define QTTS_CUDA_NETWORK_LIBRARY_PRODUCTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "gemm/cublas_lt.h"
#include "gemm/gemm.h"
#include "network/weight_loader.h"
#include "qtts/status.h"
#include "runtime/device_memory.h"

namespace qtts::cuda {

// NVIDIA's library as it multiplies the matrices of a network in BF16, with one algorithm for all matrices of a shape.
// Must live as long as the matrices are used. Not thread-safe.
class LibraryProducts {
 public:
  // For up to `most_rows` rows; fast with `likely_rows`.
  LibraryProducts(std::unique_ptr<CublasLt> library, int64_t likely_rows, int64_t most_rows);

  // Gives the matrix, which `loader` owns, to the library: its weights become plain rows.
  Status Take(WeightLoader* loader, Matrix* matrix);
  // Frees the memory that the choice of algorithms needed; called after the last matrix.
  void Finish();

  // Returns the maximum of a product's outputs.
  int most_outputs() const { return most_outputs_; }

 private:
  using Shape = std::pair<int, int>;  // outputs, columns
  Status Pin(const Shape& shape, const void* weights);

  int64_t likely_rows_, most_rows_;
  int most_outputs_ = 0;
  DeviceMemory rows_, sums_;  // for choosing
  std::unique_ptr<CublasLt> library_;
  std::map<Shape, std::unique_ptr<LibraryProduct>> products_;
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_NETWORK_LIBRARY_PRODUCTS_H_
