// SPDX-License-Identifier: LGPL-2.1-or-later
#include "runtime/code_probe.h"

namespace qtts::cuda {
namespace {

// Probes the code: compiled for the same architectures as all other kernels.
__global__ void ProbeKernel() {}

}  // namespace

cudaError_t ProbeCode(int* code) {
  cudaFuncAttributes attributes = {};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, ProbeKernel);
  if (error == cudaErrorInvalidDeviceFunction) return cudaErrorNoKernelImageForDevice;
  *code = attributes.ptxVersion;
  return error;
}

}  // namespace qtts::cuda
