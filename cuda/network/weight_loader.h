// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_NETWORK_WEIGHT_LOADER_H_
#define QTTS_CUDA_NETWORK_WEIGHT_LOADER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "checkpoint/safetensors.h"
#include "checkpoint/weights.h"
#include "gemm/gemm.h"
#include "qtts/status.h"
#include "runtime/device_memory.h"
#include "runtime/device_numbers.h"

namespace qtts::cuda {

// A table of rows on the device, in the precision's type, padded with zeros to whole chunks.
struct Table {
  void* data = nullptr;
  int64_t rows = 0;
  int width = 0;
  int stride = 0;
};

// Brings mapped tensors to the device: copies them piece by piece through page-locked memory while the
// piece before is being converted and packed. Owns what it has loaded. Not thread-safe.
class WeightLoader {
 public:
  // Makes a loader. `form`: of matrices; kInt8 needs kBF16. `numbers` must outlive it.
  static Result<std::unique_ptr<WeightLoader>> Create(Precision precision, WeightForm form,
                                                      const DeviceNumbers* numbers, cudaStream_t stream);

  // Loads a matrix of the frame. Parts lie one after the other in the outputs; biases are all there or none.
  Result<Matrix> LoadMatrix(GemmKind kind, const std::vector<const TensorView*>& parts,
                            const std::vector<const TensorView*>& biases = {});
  Result<Matrix> LoadLinear(GemmKind kind, const LinearWeights& linear);
  // Loads a matrix of kind kNormGated.
  Result<Matrix> LoadGated(const TensorView& gate, const TensorView& up);

  Result<Table> LoadTable(const TensorView& tensor);
  // Makes a table of `rows` rows of `width`, zeroed.
  Result<Table> NewTable(int64_t rows, int width);

  // Calls `use`(first row, rows, converted rows [rows][stride] on the device) for pieces of the tensor, all
  // within at most `piece_rows` rows. Work enqueued by `use` on the stream is awaited.
  Status ForPieces(const TensorView& tensor, int64_t piece_rows,
                   const std::function<Status(int64_t, int64_t, const Table&)>& use);

  // Loads a small tensor as F32, padded with zeros to whole chunks.
  Result<const float*> LoadFloats(const TensorView& tensor);
  Result<const float*> LoadFloats(const std::vector<float>& values);

  // Gives matrices of 8-bit weights one scratch memory for their values, of the largest matrix's size.
  Status ShareUnpacked(const std::vector<Matrix*>& matrices);

  // Sets `swizzled` of a BF16 matrix that has been loaded, where its sizes allow products of them (gemm/tiles.h).
  Status AddSwizzled(Matrix* matrix);

  // Owns `memory` in place of `old`, which it allocated, and which nothing that was enqueued may use any more.
  void Replace(void* old, DeviceMemory memory);

  Status Synchronize() const;
  // Synchronizes after the last tensor, and frees all memory that only loading needs.
  Status Finish();
  size_t bytes() const { return bytes_; }  // on the device so far
  Precision precision() const { return precision_; }
  const Launcher& launch() const { return launch_; }

 private:
  WeightLoader(Precision precision, WeightForm form, const DeviceNumbers* numbers, cudaStream_t stream);
  Result<void*> Allocate(size_t bytes);
  // Uploads rows [first, first + rows) of the tensor's bytes at a time; `use` enqueues the kernels that read them.
  Status Upload(const TensorView& tensor, const std::function<void(const void*, int64_t first, int64_t rows)>& use);

  Precision precision_;
  WeightForm form_;
  Launcher launch_;
  std::vector<DeviceMemory> owned_;
  size_t bytes_ = 0;
  UploadRing uploads_;
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_NETWORK_WEIGHT_LOADER_H_
