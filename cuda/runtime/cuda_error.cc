// SPDX-License-Identifier: LGPL-2.1-or-later
#include "runtime/cuda_error.h"

namespace qtts::cuda {

bool IsFault(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
      return true;
    default:
      return false;
  }
}

Status CudaStatus(cudaError_t error, const std::string& what) {
  if (Succeeds(error)) return Status::Ok();
  if (IsFault(error)) {
    return Status::DeviceUnavailable("the GPU is lost (" + std::string(cudaGetErrorString(error)) +
                                     "); CUDA cannot use it again in this process: restart the program, or choose " +
                                     "device=cpu or device=auto");
  }
  if (error == cudaErrorMemoryAllocation) {
    return Status::ResourceExhausted("GPU: not enough memory for " + what +
                                     "; close other programs that use it, choose a smaller model or device=cpu");
  }
  return Status::DeviceUnavailable("GPU: " + what + " failed: " + cudaGetErrorString(error) +
                                   "; choose device=cpu or device=auto");
}

}  // namespace qtts::cuda
