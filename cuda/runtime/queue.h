// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_QUEUE_H_
#define QTTS_CUDA_RUNTIME_QUEUE_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

#include "runtime/cuda_error.h"
#include "runtime/device_wait.h"

namespace qtts::cuda {

// A stream with a sticky error: after the first error nothing more is enqueued.
class Queue {
 public:
  explicit Queue(cudaStream_t stream) : stream_(stream) {}

  // Calls enqueue(args, stream), which launches a kernel.
  template <typename Args>
  void operator()(cudaError_t (*enqueue)(const Args&, cudaStream_t), const Args& args) {
    if (error_ == cudaSuccess) error_ = enqueue(args, stream_);
  }
  void Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    // A copy to pageable memory returns at its end.
    if (kind == cudaMemcpyDeviceToHost && error_ == cudaSuccess) error_ = AwaitStream(stream_);
    if (error_ == cudaSuccess) error_ = cudaMemcpyAsync(to, from, bytes, kind, stream_);
  }
  // Copies `rows` rows of `bytes` bytes on the device; the strides are in bytes.
  void CopyRows(void* to, size_t to_stride, const void* from, size_t from_stride, size_t bytes, size_t rows) {
    if (error_ != cudaSuccess) return;
    error_ = cudaMemcpy2DAsync(to, to_stride, from, from_stride, bytes, rows, cudaMemcpyDeviceToDevice, stream_);
  }
  void Clear(void* data, size_t bytes) {
    if (error_ == cudaSuccess) error_ = cudaMemsetAsync(data, 0, bytes, stream_);
  }

  // Returns the first error so far.
  Status status(const std::string& what) const { return CudaStatus(error_, what); }
  // Waits for all enqueued work.
  Status Finish(const std::string& what) {
    if (error_ == cudaSuccess) error_ = AwaitStream(stream_);
    return status(what);
  }

 private:
  cudaStream_t stream_;
  cudaError_t error_ = cudaSuccess;
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_QUEUE_H_
