// SPDX-License-Identifier: LGPL-2.1-or-later
#include "network/weight_loader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "gemm/tiles.h"
#include "runtime/device_copy.h"
#include "runtime/device_wait.h"
#include "runtime/memory_count.h"
#include "runtime/tensor.h"

namespace qtts::cuda {
namespace {

constexpr size_t kPieceBytes = size_t{32} << 20;
constexpr const char* kLoading = "loading the model";

int64_t RowsOf(const TensorView& tensor) { return tensor.shape.empty() ? 1 : tensor.shape.front(); }
int64_t ColumnsOf(const TensorView& tensor) { return tensor.elements() / std::max<int64_t>(1, RowsOf(tensor)); }

}  // namespace

WeightLoader::WeightLoader(Precision precision, WeightForm form, const DeviceNumbers* numbers, cudaStream_t stream)
    : precision_(precision), form_(form), launch_(stream, numbers) {}

Result<std::unique_ptr<WeightLoader>> WeightLoader::Create(Precision precision, WeightForm form,
                                                           const DeviceNumbers* numbers, cudaStream_t stream) {
  std::unique_ptr<WeightLoader> loader(new WeightLoader(precision, form, numbers, stream));
  QTTS_ASSIGN_OR_RETURN(loader->uploads_, UploadRing::Create(kPieceBytes));
  return loader;
}

Result<void*> WeightLoader::Allocate(size_t bytes) {
  QTTS_ASSIGN_OR_RETURN(DeviceMemory memory, DeviceMemory::Allocate(bytes));
  QTTS_RETURN_IF_CUDA_ERROR(EnqueueClear(memory.data(), bytes, launch_.stream), kLoading);
  void* const data = memory.data();
  owned_.push_back(std::move(memory));
  bytes_ += bytes;
  return data;
}

Status WeightLoader::Upload(const TensorView& tensor, const std::function<void(const void*, int64_t, int64_t)>& use) {
  const int64_t rows = RowsOf(tensor);
  const size_t row_bytes = static_cast<size_t>(ColumnsOf(tensor)) * DTypeBytes(tensor.dtype);
  if (row_bytes > kPieceBytes) {
    return Status::Unsupported("a tensor has rows of " + std::to_string(row_bytes) + " bytes; the GPU backend takes " +
                               std::to_string(kPieceBytes));
  }
  if (CountsMemory()) return Status::Ok();
  const int64_t piece = std::max<int64_t>(1, static_cast<int64_t>(kPieceBytes / std::max<size_t>(1, row_bytes)));
  for (int64_t first = 0; first < rows; first += piece) {
    const int64_t count = std::min(piece, rows - first);
    const size_t bytes = static_cast<size_t>(count) * row_bytes;
    QTTS_ASSIGN_OR_RETURN(char* const host, uploads_.Prepare(bytes));
    std::memcpy(host, static_cast<const char*>(tensor.data) + static_cast<size_t>(first) * row_bytes, bytes);
    QTTS_ASSIGN_OR_RETURN(const char* const piece_data, uploads_.Send(launch_.stream));
    use(piece_data, first, count);
    QTTS_RETURN_IF_CUDA_ERROR(launch_.error, kLoading);
  }
  return Status::Ok();
}

Result<Matrix> WeightLoader::LoadMatrix(GemmKind kind, const std::vector<const TensorView*>& parts,
                                        const std::vector<const TensorView*>& biases) {
  Matrix matrix;
  matrix.kind = kind;
  matrix.form = form_;
  matrix.columns = static_cast<int>(ColumnsOf(*parts.front()));
  for (const TensorView* part : parts) matrix.outputs += static_cast<int>(RowsOf(*part));
  QTTS_ASSIGN_OR_RETURN(matrix.data, Allocate(matrix.bytes(precision_)));
  int64_t offset = 0;
  for (const TensorView* part : parts) {
    QTTS_RETURN_IF_ERROR(Upload(*part, [&](const void* data, int64_t first, int64_t rows) {
      Pack(launch_, precision_, matrix, PackPart::kWhole, part->dtype, data, offset + first, rows);
    }));
    offset += RowsOf(*part);
  }
  if (!biases.empty()) {
    std::vector<float> values;
    for (const TensorView* bias : biases) {
      const std::vector<float> more = FloatsOf(*bias);
      values.insert(values.end(), more.begin(), more.end());
    }
    QTTS_ASSIGN_OR_RETURN(matrix.bias, LoadFloats(values));
  }
  return matrix;
}

Result<Matrix> WeightLoader::LoadLinear(GemmKind kind, const LinearWeights& linear) {
  std::vector<const TensorView*> biases;
  if (linear.bias.has_value()) biases.push_back(&*linear.bias);
  return LoadMatrix(kind, {&linear.weight}, biases);
}

Result<Matrix> WeightLoader::LoadGated(const TensorView& gate, const TensorView& up) {
  Matrix matrix;
  matrix.kind = GemmKind::kNormGated;
  matrix.form = form_;
  matrix.columns = static_cast<int>(ColumnsOf(gate));
  matrix.outputs = static_cast<int>(RowsOf(gate));
  QTTS_ASSIGN_OR_RETURN(matrix.data, Allocate(matrix.bytes(precision_)));
  for (const bool is_gate : {true, false}) {
    const TensorView& tensor = is_gate ? gate : up;
    QTTS_RETURN_IF_ERROR(Upload(tensor, [&](const void* data, int64_t first, int64_t rows) {
      Pack(launch_, precision_, matrix, is_gate ? PackPart::kGate : PackPart::kUp, tensor.dtype, data, first, rows);
    }));
  }
  return matrix;
}

Result<Table> WeightLoader::NewTable(int64_t rows, int width) {
  Table table = {nullptr, rows, width, Padded(width)};
  QTTS_ASSIGN_OR_RETURN(
      table.data, Allocate(static_cast<size_t>(rows) * static_cast<size_t>(table.stride) * ElementBytes(precision_)));
  return table;
}

Result<Table> WeightLoader::LoadTable(const TensorView& tensor) {
  QTTS_ASSIGN_OR_RETURN(const Table table, NewTable(RowsOf(tensor), static_cast<int>(ColumnsOf(tensor))));
  QTTS_RETURN_IF_ERROR(Upload(tensor, [&](const void* data, int64_t first, int64_t rows) {
    char* const target = static_cast<char*>(table.data) +
                         static_cast<size_t>(first) * static_cast<size_t>(table.stride) * ElementBytes(precision_);
    ConvertRows(launch_, precision_, tensor.dtype, data, rows, table.width, target, table.stride);
  }));
  return table;
}

Status WeightLoader::ForPieces(const TensorView& tensor, int64_t piece_rows,
                               const std::function<Status(int64_t, int64_t, const Table&)>& use) {
  Table piece = {nullptr, piece_rows, static_cast<int>(ColumnsOf(tensor)), 0};
  piece.stride = Padded(piece.width);
  const size_t row_bytes = static_cast<size_t>(piece.stride) * ElementBytes(precision_);
  QTTS_ASSIGN_OR_RETURN(const DeviceMemory memory,
                        DeviceMemory::AllocateZeroed(static_cast<size_t>(piece_rows) * row_bytes));
  piece.data = memory.data();
  Status status;
  QTTS_RETURN_IF_ERROR(Upload(tensor, [&](const void* data, int64_t first, int64_t rows) {
    for (int64_t i = 0; i < rows && status.ok(); i += piece_rows) {
      const int64_t count = std::min(piece_rows, rows - i);
      const size_t offset = static_cast<size_t>(i) * static_cast<size_t>(piece.width) * DTypeBytes(tensor.dtype);
      ConvertRows(launch_, precision_, tensor.dtype, static_cast<const char*>(data) + offset, count, piece.width,
                  piece.data, piece.stride);
      status = use(first + i, count, piece);
    }
  }));
  QTTS_RETURN_IF_ERROR(status);
  return Synchronize();
}

Result<const float*> WeightLoader::LoadFloats(const TensorView& tensor) { return LoadFloats(FloatsOf(tensor)); }

Result<const float*> WeightLoader::LoadFloats(const std::vector<float>& values) {
  const auto padded = static_cast<size_t>(Padded(static_cast<int>(values.size())));
  QTTS_ASSIGN_OR_RETURN(void* const data, Allocate(padded * sizeof(float)));
  // From pageable memory: copied away before the call returns.
  QTTS_RETURN_IF_CUDA_ERROR(
      EnqueueCopy(data, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice, launch_.stream),
      kLoading);
  return static_cast<const float*>(data);
}

Status WeightLoader::ShareUnpacked(const std::vector<Matrix*>& matrices) {
  size_t bytes = 0;
  for (const Matrix* matrix : matrices) {
    if (matrix->form == WeightForm::kInt8) bytes = std::max(bytes, matrix->plain_bytes(precision_));
  }
  if (bytes == 0) return Status::Ok();
  QTTS_ASSIGN_OR_RETURN(void* const unpacked, Allocate(bytes));
  for (Matrix* matrix : matrices) matrix->unpacked = unpacked;
  return Status::Ok();
}

Status WeightLoader::AddSwizzled(Matrix* matrix) {
  if (!gemm::HasTiles(*matrix)) return Status::Ok();
  QTTS_ASSIGN_OR_RETURN(void* const swizzled, Allocate(matrix->bytes(precision_)));
  gemm::ArrangeWeights(launch_, *matrix, swizzled);
  QTTS_RETURN_IF_CUDA_ERROR(launch_.error, kLoading);
  matrix->swizzled = swizzled;
  return Status::Ok();
}

void WeightLoader::Replace(void* old, DeviceMemory memory) {
  const auto owner =
      std::find_if(owned_.begin(), owned_.end(), [&](const DeviceMemory& owned) { return owned.data() == old; });
  bytes_ += memory.bytes();
  bytes_ -= owner->bytes();
  *owner = std::move(memory);
}

Status WeightLoader::Finish() {
  QTTS_RETURN_IF_ERROR(Synchronize());
  uploads_ = UploadRing();
  return Status::Ok();
}

Status WeightLoader::Synchronize() const {
  QTTS_RETURN_IF_CUDA_ERROR(launch_.error, kLoading);
  return CudaStatus(AwaitStream(launch_.stream), kLoading);
}

}  // namespace qtts::cuda
