// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_DEVICE_COPY_H_
#define QTTS_CUDA_RUNTIME_DEVICE_COPY_H_

#include <cuda_runtime_api.h>

#include <cstddef>

#include "runtime/memory_count.h"

// Copies and clearing of what a load allocates: left out while the thread counts memory (memory_count.h).
namespace qtts::cuda {

inline cudaError_t EnqueueCopy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return CountsMemory() ? cudaSuccess : cudaMemcpyAsync(to, from, bytes, kind, stream);
}

inline cudaError_t EnqueueClear(void* data, size_t bytes, cudaStream_t stream) {
  return CountsMemory() ? cudaSuccess : cudaMemsetAsync(data, 0, bytes, stream);
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_DEVICE_COPY_H_
