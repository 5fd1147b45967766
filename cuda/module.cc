// SPDX-License-Identifier: LGPL-2.1-or-later
#include <memory>
#include <utility>

#include "backend/gpu_module.h"
#include "cuda_backend.h"

namespace qtts::cuda {
namespace {

Precision PrecisionOf(const GpuOptions& options) { return options.f32 ? Precision::kF32 : Precision::kBF16; }

Status Create(std::shared_ptr<const Checkpoint> checkpoint, const GpuOptions& options,
              std::unique_ptr<Backend>* backend) {
  CudaBackendOptions backend_options;
  backend_options.precision = PrecisionOf(options);
  backend_options.device = options.device;
  QTTS_ASSIGN_OR_RETURN(*backend, CudaBackend::Create(std::move(checkpoint), backend_options));
  return Status::Ok();
}

Status Check(const Checkpoint& checkpoint, const GpuOptions& options) {
  return ChooseDevice(checkpoint, PrecisionOf(options), options.device).status();
}

}  // namespace
}  // namespace qtts::cuda

extern "C" {
extern __attribute__((visibility("default"))) const qtts::GpuModule qtts_gpu_module_v2;
const qtts::GpuModule qtts_gpu_module_v2 = {qtts::GpuModuleBuild(), qtts::cuda::Create, qtts::cuda::Check};
}
