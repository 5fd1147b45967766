// SPDX-License-Identifier: LGPL-2.1-or-later
#include "network/library_products.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "gemm/library.h"
#include "runtime/device_wait.h"
#include "runtime/memory_count.h"

namespace qtts::cuda {
namespace {

// BF16 values of either sign between 1/2 and 2.
std::vector<uint16_t> RandomRows(size_t count) {
  std::mt19937 random(1);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the choice should be the same again
  std::vector<uint16_t> values(count);
  for (uint16_t& value : values) value = static_cast<uint16_t>(0x3F00U + (random() & 0x80FFU));
  return values;
}

}  // namespace

LibraryProducts::LibraryProducts(std::unique_ptr<CublasLt> library, int64_t likely_rows, int64_t most_rows)
    : likely_rows_(likely_rows), most_rows_(most_rows), library_(std::move(library)) {}

Status LibraryProducts::Pin(const Shape& shape, const void* weights) {
  const auto [outputs, columns] = shape;
  const auto rows = static_cast<size_t>(most_rows_);
  if (const size_t bytes = rows * static_cast<size_t>(columns) * 2; rows_.bytes() < bytes) {
    rows_ = DeviceMemory();
    QTTS_ASSIGN_OR_RETURN(rows_, DeviceMemory::Allocate(bytes));
    if (!CountsMemory()) {
      QTTS_RETURN_IF_CUDA_ERROR(CopyAndWait(rows_.data(), RandomRows(bytes / 2).data(), bytes, cudaMemcpyHostToDevice),
                                "choosing products");
    }
  }
  if (const size_t bytes = rows * static_cast<size_t>(outputs) * sizeof(float); sums_.bytes() < bytes) {
    sums_ = DeviceMemory();
    QTTS_ASSIGN_OR_RETURN(sums_, DeviceMemory::Allocate(bytes));
  }
  most_outputs_ = std::max(most_outputs_, outputs);
  if (CountsMemory()) return Status::Ok();
  QTTS_ASSIGN_OR_RETURN(products_[shape], library_->Pin(likely_rows_, most_rows_, outputs, columns, weights,
                                                        rows_.data(), sums_.as<float>()));
  if (LogEnabled(LogLevel::kDebug)) {
    Log(LogLevel::kDebug, "cuBLASLt: " + std::to_string(outputs) + " x " + std::to_string(columns) + ": " +
                              products_[shape]->algorithm());
  }
  return Status::Ok();
}

Status LibraryProducts::Take(WeightLoader* loader, Matrix* matrix) {
  const Shape shape = {gemm::LibraryOutputs(*matrix), Padded(matrix->columns)};
  QTTS_ASSIGN_OR_RETURN(DeviceMemory plain, DeviceMemory::Allocate(matrix->bytes(loader->precision())));
  gemm::Unpack(loader->launch(), *matrix, plain.data());
  QTTS_RETURN_IF_ERROR(loader->Synchronize());
  void* const packed = matrix->data;
  matrix->data = plain.data();
  loader->Replace(packed, std::move(plain));
  if (products_.find(shape) == products_.end()) QTTS_RETURN_IF_ERROR(Pin(shape, matrix->data));
  matrix->library = products_[shape].get();
  return Status::Ok();
}

void LibraryProducts::Finish() {
  rows_ = DeviceMemory();
  sums_ = DeviceMemory();
}

}  // namespace qtts::cuda
