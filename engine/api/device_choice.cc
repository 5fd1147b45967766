// SPDX-License-Identifier: LGPL-2.1-or-later
#include "api/device_choice.h"

#include <string>

namespace qtts {

Status CheckOptions(const EngineOptions& options) {
  if (options.lead_frames < 1) return Status::InvalidArgument("lead_frames must be at least 1");
  if (options.cuda_device < -1) {
    return Status::InvalidArgument("cuda-device-id must be -1 (any GPU) or the number of a GPU, not " +
                                   std::to_string(options.cuda_device));
  }
  if (options.device != Device::kCpu) return Status::Ok();
  if (options.precision == Precision::kBF16) {
    return Status::InvalidArgument(
        "precision=bf16 is arithmetic of the GPU, the CPU computes in F32: choose precision=auto, or device=cuda");
  }
  if (options.cuda_device >= 0) {
    return Status::InvalidArgument("cuda-device-id=" + std::to_string(options.cuda_device) +
                                   " names a GPU, but device=cpu: leave it at -1, or choose device=cuda");
  }
  return Status::Ok();
}

bool NeedsGpu(const EngineOptions& options) {
  return options.device == Device::kCuda || options.precision == Precision::kBF16;
}

GpuOptions GpuOptionsOf(const EngineOptions& options) {
  GpuOptions gpu;
  gpu.f32 = options.precision == Precision::kF32;
  gpu.device = options.cuda_device;
  return gpu;
}

bool CpuMayServe(const Status& status) {
  return status.code() == StatusCode::kDeviceUnavailable || status.code() == StatusCode::kResourceExhausted ||
         status.code() == StatusCode::kUnsupported;
}

Status ExplainGpuError(const EngineOptions& options, const Status& status) {
  if (options.device == Device::kCuda || !CpuMayServe(status)) return status;
  return {status.code(), "precision=bf16 needs a GPU, precision=auto does not: " + status.message()};
}

}  // namespace qtts
