// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CODEC_ERROR_H_
#define QTTS_CUDA_CODEC_ERROR_H_

#include <cuda_runtime_api.h>

#include <string>

#include "device_memory.h"
#include "qtts/status.h"

namespace qtts::cuda::codec {

// `error`, which is one; `doing` says what was being done: "saving a stream".
inline Status CudaError(cudaError_t error, const std::string& doing) {
  const std::string message = "The codec failed on the GPU while " + doing + ": " + cudaGetErrorString(error) + ".";
  if (error == cudaErrorMemoryAllocation) {
    return Status::ResourceExhausted(message + " Use a smaller model, fewer streams, or device=cpu.");
  }
  return IsFault(error) ? CudaStatus(error, doing) : Status::DeviceUnavailable(message);
}

}  // namespace qtts::cuda::codec

#endif  // QTTS_CUDA_CODEC_ERROR_H_
