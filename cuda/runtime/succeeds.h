// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_SUCCEEDS_H_
#define QTTS_CUDA_RUNTIME_SUCCEEDS_H_

#include <cuda_runtime_api.h>

// Of cuda_error.h, what files with kernels need: those do not depend on Status.
namespace qtts::cuda {

// Whether all is well; if not, that is forgotten.
inline bool Succeeds(cudaError_t error) {
  if (error != cudaSuccess) (void)cudaGetLastError();
  return error == cudaSuccess;
}

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_SUCCEEDS_H_
