// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_SUCCEEDS_H_
#define QTTS_CUDA_RUNTIME_SUCCEEDS_H_

#include <cuda_runtime_api.h>

// The part of cuda_error.h for files with kernels, which do not depend on Status.
namespace qtts::cuda {

// Returns true if there is no error. Clears the error.
inline bool Succeeds(cudaError_t error) {
  if (error != cudaSuccess) (void)cudaGetLastError();
  return error == cudaSuccess;
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_SUCCEEDS_H_
