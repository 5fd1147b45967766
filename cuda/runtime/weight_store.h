// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_WEIGHT_STORE_H_
#define QTTS_CUDA_RUNTIME_WEIGHT_STORE_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <utility>

#include "qtts/status.h"
#include "runtime/arena.h"
#include "runtime/cuda_error.h"
#include "runtime/device_copy.h"
#include "runtime/device_wait.h"

namespace qtts::cuda {

// The base of what packs weights: device memory that stays, in the caller's arena, and memory for the moment, in its
// own; one stream; and the first error of all that is done there. After an error memory is null and further operations
// must be left out: `if (!failed()) Check(...)`. Not thread-safe.
class WeightStore {
 public:
  const Status& status() const { return status_; }
  bool failed() const { return !status_.ok(); }
  void Check(cudaError_t error) {
    if (!Succeeds(error) && status_.ok()) status_ = CudaStatus(error, what_);
  }
  // Notes an error that is not CUDA's, if it is the first.
  void Fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  // Takes back what is staged. Work on the stream is in order, so what is staged next does not disturb it.
  void Release() { staging_.Reuse(); }

 protected:
  // `what` is being done, for errors: "loading the model".
  WeightStore(Arena* memory, cudaStream_t stream, const char* what) : memory_(*memory), stream_(stream), what_(what) {}

  cudaStream_t stream() const { return stream_; }
  Arena* memory() { return &memory_; }
  Arena* staging() { return &staging_; }

  // Allocates an array, not initialised.
  template <typename T>
  T* Allocate(Arena* arena, size_t count) {
    if (failed()) return nullptr;
    T* const data = static_cast<T*>(arena->Allocate(count * sizeof(T)));
    if (data == nullptr) Check(arena->error());
    return data;
  }
  template <typename T>
  T* AllocateZeroed(Arena* arena, size_t count) {
    T* const data = Allocate<T>(arena, count);
    if (!failed()) Check(EnqueueClear(data, count * sizeof(T), stream_));
    return data;
  }
  // Copies from host memory: pageable, so it is read before the call returns.
  void Upload(void* to, const void* from, size_t bytes) {
    if (!failed()) Check(EnqueueCopy(to, from, bytes, cudaMemcpyHostToDevice, stream_));
  }

  // Copies host memory to memory for the moment, until Release().
  void* StageCopy(const void* from, size_t bytes) {
    void* const copy = Allocate<char>(&staging_, bytes);
    Upload(copy, from, bytes);
    return copy;
  }
  // Copies host memory, which may be gone after the call, to memory that stays.
  void* KeepCopy(const void* from, size_t bytes) {
    void* const copy = Allocate<char>(&memory_, bytes);
    Upload(copy, from, bytes);
    if (!failed()) Check(AwaitStream(stream_));
    return copy;
  }

 private:
  Arena& memory_;
  Arena staging_;
  cudaStream_t stream_;
  const char* what_;
  Status status_;
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_WEIGHT_STORE_H_
