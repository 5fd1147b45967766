// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_ENCODER_QUEUE_H_
#define QTTS_CUDA_ENCODER_QUEUE_H_

#include <cuda_runtime_api.h>

#include <string>

#include "encoder/kernels.h"
#include "qtts/status.h"
#include "runtime/device_memory.h"

namespace qtts::cuda::encoder {

// A stream that remembers the first error of what is put on it; after one, nothing more is.
class Queue {
 public:
  explicit Queue(cudaStream_t stream) : stream_(stream) {}

  // Enqueue(args, stream): one of kernels.h.
  template <typename Args>
  void operator()(cudaError_t (*enqueue)(const Args&, cudaStream_t), const Args& args) {
    if (error_ == cudaSuccess) error_ = enqueue(args, stream_);
  }
  void Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    if (error_ == cudaSuccess) error_ = cudaMemcpyAsync(to, from, bytes, kind, stream_);
  }
  // Channels of one signal to another, on the device.
  void Copy(const Signal& to, const ConstSignal& from, int64_t rows, int channels) {
    if (error_ != cudaSuccess) return;
    constexpr size_t kFloat = sizeof(float);
    error_ = cudaMemcpy2DAsync(to.data, static_cast<size_t>(to.stride) * kFloat, from.data,
                               static_cast<size_t>(from.stride) * kFloat, static_cast<size_t>(channels) * kFloat,
                               static_cast<size_t>(rows), cudaMemcpyDeviceToDevice, stream_);
  }
  // Waits for all of it.
  Status Finish(const std::string& what) {
    if (error_ == cudaSuccess) error_ = cudaStreamSynchronize(stream_);
    return CudaStatus(error_, what);
  }

 private:
  cudaStream_t stream_;
  cudaError_t error_ = cudaSuccess;
};

}  // namespace qtts::cuda::encoder

#endif  // QTTS_CUDA_ENCODER_QUEUE_H_
