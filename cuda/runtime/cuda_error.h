// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_CUDA_ERROR_H_
#define QTTS_CUDA_RUNTIME_CUDA_ERROR_H_

#include <cuda_runtime_api.h>

#include <string>

#include "qtts/status.h"
#include "runtime/succeeds.h"

// CUDA's errors as Status. CUDA keeps the last one of a thread until it is asked for it, and a launch says nothing
// else: an error that has been dealt with must not be found there by whoever launches next. All thread-safe.
namespace qtts::cuda {

// Whether CUDA refuses everything from then on: a fault on the device, which ends for a new process only. Another
// context does not help, even one made before; after cudaDeviceReset() there is none to be had, and to free what the
// old one held crashes.
bool IsFault(cudaError_t error);

// The last error is forgotten. `what` says what was being done: "loading the model".
Status CudaStatus(cudaError_t error, const std::string& what);

#define QTTS_RETURN_IF_CUDA_ERROR(expr, what)                                           \
  do {                                                                                  \
    if (const cudaError_t qtts_cuda_error_ = (expr); qtts_cuda_error_ != cudaSuccess) { \
      return ::qtts::cuda::CudaStatus(qtts_cuda_error_, what);                          \
    }                                                                                   \
  } while (false)

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_CUDA_ERROR_H_
