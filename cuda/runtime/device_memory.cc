// SPDX-License-Identifier: LGPL-2.1-or-later
#include "runtime/device_memory.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/device_wait.h"
#include "runtime/pretended_card.h"

namespace qtts::cuda {

template <bool kPinned>
Result<Memory<kPinned>> Memory<kPinned>::Allocate(size_t bytes) {
  Memory memory;
  bytes = std::max<size_t>(bytes, 1);
  memory.bytes_ = bytes;
  if (MemoryCount* const count = MemoryCount::Current(); count != nullptr) {
    memory.data_ = count->Take(kPinned ? 0 : bytes);
    memory.counted_ = true;
    return memory;
  }
  if constexpr (kPinned) {
    QTTS_RETURN_IF_CUDA_ERROR(cudaHostAlloc(&memory.data_, bytes, cudaHostAllocMapped),
                              std::to_string(bytes) + " bytes of page-locked memory");
  } else {
    const std::string what = std::to_string(bytes) + " bytes";
    if (Pretends()) QTTS_RETURN_IF_CUDA_ERROR(CheckPretendedMemory(bytes), what);
    QTTS_RETURN_IF_CUDA_ERROR(cudaMalloc(&memory.data_, bytes), what);
  }
  return memory;
}

template <bool kPinned>
Result<Memory<kPinned>> Memory<kPinned>::AllocateZeroed(size_t bytes) {
  QTTS_ASSIGN_OR_RETURN(Memory memory, Allocate(bytes));
  if (memory.counted_) return memory;
  if constexpr (kPinned) {
    std::fill_n(memory.template as<char>(), memory.bytes(), '\0');
  } else {
    // Streams of this module do not wait for the default stream.
    QTTS_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(memory.data_, 0, memory.bytes_, nullptr), "clearing memory");
    QTTS_RETURN_IF_CUDA_ERROR(AwaitStream(nullptr), "clearing memory");
  }
  return memory;
}

template <bool kPinned>
Result<Memory<kPinned>> Memory<kPinned>::AllocateZeroed(size_t bytes, cudaStream_t stream) requires(!kPinned) {
  QTTS_ASSIGN_OR_RETURN(Memory memory, Allocate(bytes));
  if (memory.counted_) return memory;
  QTTS_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(memory.data_, 0, memory.bytes_, stream), "clearing memory");
  return memory;
}

template <bool kPinned>
void Memory<kPinned>::Free() {
  void* const data = std::exchange(data_, nullptr);
  if (data != nullptr && std::exchange(counted_, false)) {
    if (MemoryCount* const count = MemoryCount::Current(); count != nullptr) count->GiveBack(kPinned ? 0 : bytes_);
    return;
  }
  if (data == nullptr || HangsHere()) return;
  // Nothing can be done about an error; a lost device has freed everything anyway.
  (void)(kPinned ? cudaFreeHost(data) : cudaFree(data));
}

template class Memory<false>;
template class Memory<true>;

Stream::~Stream() {
  if (stream_ != nullptr && !HangsHere()) (void)cudaStreamDestroy(stream_);
}

int Stream::Priority(bool urgent) {
  int least = 0, most = 0;
  (void)Succeeds(cudaDeviceGetStreamPriorityRange(&least, &most));
  return urgent ? most : least;
}

Result<Stream> Stream::Create(bool urgent) {
  if (CountsMemory()) return Stream();
  Stream stream;
  QTTS_RETURN_IF_CUDA_ERROR(cudaStreamCreateWithPriority(&stream.stream_, cudaStreamNonBlocking, Priority(urgent)),
                            "making a stream");
  return stream;
}

Status Stream::Synchronize() const { return CudaStatus(AwaitStream(stream_), "waiting for the device"); }

Event::~Event() {
  if (event_ != nullptr && !HangsHere()) (void)cudaEventDestroy(event_);
}

Result<Event> Event::Create(bool timing) {
  Event event;
  if (CountsMemory()) return event;
  QTTS_RETURN_IF_CUDA_ERROR(cudaEventCreateWithFlags(&event.event_, timing ? cudaEventDefault : cudaEventDisableTiming),
                            "making an event");
  return event;
}

Result<UploadRing> UploadRing::Create(size_t bytes) {
  UploadRing ring;
  for (Buffer& buffer : ring.buffers_) {
    if (bytes > 0) {
      QTTS_ASSIGN_OR_RETURN(buffer.host, PinnedMemory::Allocate(bytes));
      QTTS_ASSIGN_OR_RETURN(buffer.device, DeviceMemory::Allocate(bytes));
    }
    QTTS_ASSIGN_OR_RETURN(buffer.free, Event::Create());
  }
  return ring;
}

Result<char*> UploadRing::Prepare(size_t bytes) {
  Buffer& buffer = buffers_[next_];
  QTTS_RETURN_IF_CUDA_ERROR(AwaitEvent(buffer.free.get()), "an upload");
  if (buffer.host.bytes() < bytes) {
    const size_t room = std::max(2 * bytes, size_t{64} << 10);
    // Kernels that still read the old memory end before it is freed: cudaFree() waits. The host's memory comes last,
    // since its size says whether both are there.
    QTTS_ASSIGN_OR_RETURN(buffer.device, DeviceMemory::Allocate(room));
    QTTS_ASSIGN_OR_RETURN(buffer.host, PinnedMemory::Allocate(room));
  }
  bytes_ = bytes;
  return buffer.host.as<char>();
}

Result<const char*> UploadRing::Send(cudaStream_t stream) {
  Buffer& buffer = buffers_[next_];
  next_ = (next_ + 1) % buffers_.size();
  if (CountsMemory()) return buffer.device.as<const char>();
  QTTS_RETURN_IF_CUDA_ERROR(
      cudaMemcpyAsync(buffer.device.data(), buffer.host.data(), bytes_, cudaMemcpyHostToDevice, stream), "an upload");
  QTTS_RETURN_IF_CUDA_ERROR(cudaEventRecord(buffer.free.get(), stream), "an upload");
  return buffer.device.as<const char>();
}

Graph::~Graph() {
  if (exec_ != nullptr && !HangsHere()) (void)cudaGraphExecDestroy(exec_);
}

Result<Graph> Graph::Finish(cudaStream_t stream, const Status& status) {
  cudaGraph_t recorded = nullptr;
  const cudaError_t end = cudaStreamEndCapture(stream, &recorded);
  Graph graph;
  cudaError_t error = end;
  if (status.ok() && error == cudaSuccess) {
    error = cudaGraphInstantiate(&graph.exec_, recorded, cudaGraphInstantiateFlagUseNodePriority);
  }
  if (recorded != nullptr) (void)cudaGraphDestroy(recorded);
  QTTS_RETURN_IF_ERROR(status);
  QTTS_RETURN_IF_CUDA_ERROR(error, "recording a graph");
  QTTS_RETURN_IF_CUDA_ERROR(cudaGraphUpload(graph.exec_, stream), "uploading a graph");
  return graph;
}

Status Graph::Launch(cudaStream_t stream) const {
  return CudaStatus(cudaGraphLaunch(exec_, stream), "launching a frame");
}

}  // namespace qtts::cuda
