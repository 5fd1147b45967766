// SPDX-License-Identifier: LGPL-2.1-or-later
#include "runtime/cuda_error.h"

#include <chrono>

#include "runtime/device_wait.h"

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
  if (error == cudaErrorLaunchTimeout && HangsHere()) {
    const auto seconds = std::chrono::duration_cast<std::chrono::duration<double>>(DeviceTimeout()).count();
    std::string text = std::to_string(seconds);
    text.resize(text.find('.') + 2);
    return Status::DeviceUnavailable("the GPU is lost: it has not finished its work within " + text +
                                     " s (QTTS_CUDA_TIMEOUT); restart the program, or choose device=cpu or " +
                                     "device=auto. nvidia-smi and the system's log may say why");
  }
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
