// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_CUDA_ERROR_H_
#define QTTS_CUDA_RUNTIME_CUDA_ERROR_H_

#include <cuda_runtime_api.h>

#include <string>

#include "qtts/status.h"
#include "runtime/succeeds.h"

// Conversion of CUDA errors to Status. CUDA stores the last error of a thread until it is read, and a launch reports
// errors only there. A handled error must be cleared, or the next launch would report it. All functions are
// thread-safe.
namespace qtts::cuda {

// Returns true if the error is permanent: after a device fault every CUDA call of this process fails. Another context
// does not help, even one made before. After cudaDeviceReset() no context can be made, and freeing memory of the old
// one crashes.
bool IsFault(cudaError_t error);

// Returns the error as a status, and clears the last error. `what`: the action, as in "loading the model".
Status CudaStatus(cudaError_t error, const std::string& what);
// The `what` of all that runs while an utterance does.
inline constexpr const char* kSpeaking = "making speech";

#define QTTS_RETURN_IF_CUDA_ERROR(expr, what)                                           \
  do {                                                                                  \
    if (const cudaError_t qtts_cuda_error_ = (expr); qtts_cuda_error_ != cudaSuccess) { \
      return ::qtts::cuda::CudaStatus(qtts_cuda_error_, what);                          \
    }                                                                                   \
  } while (false)

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_CUDA_ERROR_H_
