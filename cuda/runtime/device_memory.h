// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_DEVICE_MEMORY_H_
#define QTTS_CUDA_RUNTIME_DEVICE_MEMORY_H_

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <utility>

#include "qtts/status.h"
#include "runtime/cuda_error.h"
#include "runtime/memory_count.h"

// Owners of CUDA resources. All are movable values that free what they own; none is thread-safe. While the thread
// counts memory (memory_count.h) they own nothing.
namespace qtts::cuda {

// Bytes of device memory; or of page-locked host memory that the device can read and write.
template <bool kPinned>
class Memory {
 public:
  Memory() = default;
  ~Memory() { Free(); }
  Memory(Memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        counted_(std::exchange(other.counted_, false)) {}
  Memory& operator=(Memory&& other) noexcept {
    if (this != &other) {
      Free();
      data_ = std::exchange(other.data_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
      counted_ = std::exchange(other.counted_, false);
    }
    return *this;
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Allocates memory, not initialised. At least one byte is allocated. kResourceExhausted if there is no room.
  static Result<Memory> Allocate(size_t bytes);
  // Allocates device memory only: all bytes zero once what was enqueued before on any stream has run.
  static Result<Memory> AllocateZeroed(size_t bytes);
  // Allocates device memory only: zero for work that is enqueued on `stream` from now on. Does not wait for the
  // device.
  static Result<Memory> AllocateZeroed(size_t bytes, cudaStream_t stream) requires(!kPinned);

  void* data() const { return data_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  void Free();
  void* data_ = nullptr;
  size_t bytes_ = 0;
  bool counted_ = false;  // by a MemoryCount: there is no memory
};

using DeviceMemory = Memory<false>;
using PinnedMemory = Memory<true>;

class Stream {
 public:
  Stream() = default;
  // Owns an existing stream.
  explicit Stream(cudaStream_t stream) : stream_(stream) {}
  ~Stream();
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  // Creates a stream. Work on an urgent stream has priority over other streams.
  static Result<Stream> Create(bool urgent = false);
  // Returns the priority of such streams on the current device.
  static int Priority(bool urgent);
  cudaStream_t get() const { return stream_; }
  // Waits for everything enqueued.
  Status Synchronize() const;

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  Event() = default;
  ~Event();
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  // Creates an event. `timing`: for cudaEventElapsedTime().
  static Result<Event> Create(bool timing = false);
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// Asynchronous uploads through two buffers of page-locked memory, used alternately.
class UploadRing {
 public:
  // Allocates for uploads of `bytes`; grows if needed.
  static Result<UploadRing> Create(size_t bytes = 0);
  // Returns memory for an upload of `bytes`. Waits only if the upload before the last one is still running.
  Result<char*> Prepare(size_t bytes);
  // Enqueues the copy of what was prepared; where it will be, for work enqueued on the same stream before
  // the next but one upload.
  Result<const char*> Send(cudaStream_t stream);

 private:
  struct Buffer {
    PinnedMemory host;
    DeviceMemory device;
    Event free;
  };
  std::array<Buffer, 2> buffers_;
  size_t next_ = 0;
  size_t bytes_ = 0;
};

// A CUDA graph: captured once, launched many times, with the priority of the stream that it was captured on.
class Graph {
 public:
  Graph() = default;
  ~Graph();
  Graph(Graph&& other) noexcept : exec_(std::exchange(other.exec_, nullptr)) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(exec_, other.exec_);
    return *this;
  }
  // Captures the work that `enqueue` (returning Status) puts on `stream`, and uploads the graph.
  template <typename Enqueue>
  static Result<Graph> Capture(cudaStream_t stream, const Enqueue& enqueue) {
    if (CountsMemory()) return Graph();
    QTTS_RETURN_IF_CUDA_ERROR(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "recording a graph");
    const Status status = enqueue();
    return Finish(stream, status);
  }
  bool empty() const { return exec_ == nullptr; }
  Status Launch(cudaStream_t stream) const;

 private:
  static Result<Graph> Finish(cudaStream_t stream, const Status& status);
  cudaGraphExec_t exec_ = nullptr;
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_DEVICE_MEMORY_H_
