// SPDX-License-Identifier: LGPL-2.1-or-later
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "backend/device_module.h"
#include "cuda_backend.h"
#include "device_choice.h"
#include "runtime/device_wait.h"
#include "speech_decoder.h"

namespace qtts::cuda {
namespace {

Precision PrecisionOf(const EngineOptions& options) {
  return options.precision == qtts::Precision::kF32 ? Precision::kF32 : Precision::kBF16;
}

Status CheckTimeout() {
  if (TimeoutIsValid()) return Status::Ok();
  return Status::InvalidArgument("QTTS_CUDA_TIMEOUT is \"" + std::string(std::getenv("QTTS_CUDA_TIMEOUT")) +
                                 "\"; it is a number of seconds above 0");
}

// For comparisons, and should one of them not work somewhere.
Result<FramePath> PathFromEnvironment() {
  const char* const value = std::getenv("QTTS_CUDA_PATH");
  const std::string_view path = value == nullptr ? "" : value;
  if (path.empty()) return FramePath::kBest;
  if (path == "graph") return FramePath::kGraph;
  if (path == "persistent") return FramePath::kPersistent;
  return Status::InvalidArgument("QTTS_CUDA_PATH is \"" + std::string(path) + "\"; it can be graph or persistent");
}

CodecPrecision CodecPrecisionOf(const EngineOptions& options) {
  return options.codec_precision == qtts::CodecPrecision::kFast ? CodecPrecision::kFast : CodecPrecision::kExact;
}

// For tests and measurements.
Result<ManyRowsProducts> ProductsFromEnvironment() {
  const char* const value = std::getenv("QTTS_CUDA_PRODUCTS");
  const std::string_view products = value == nullptr ? "" : value;
  if (products.empty()) return ManyRowsProducts::kBest;
  if (products == "own") return ManyRowsProducts::kWarp;
  if (products == "warpgroup") return ManyRowsProducts::kWarpgroup;
  if (products == "cublaslt") return ManyRowsProducts::kLibrary;
  return Status::InvalidArgument("QTTS_CUDA_PRODUCTS is \"" + std::string(products) +
                                 "\"; it can be own, warpgroup or cublaslt");
}

// The engine's options, and those of the environment.
Result<CudaOptions> BackendOptions(const EngineOptions& options) {
  CudaOptions backend;
  QTTS_ASSIGN_OR_RETURN(backend.path, PathFromEnvironment());
  QTTS_ASSIGN_OR_RETURN(backend.products, ProductsFromEnvironment());
  backend.precision = PrecisionOf(options);
  if (options.precision == qtts::Precision::kInt8) backend.weights = WeightForm::kInt8;
  backend.codec_precision = CodecPrecisionOf(options);
  backend.device = options.gpu;
  backend.max_slots = options.voices;
  return backend;
}

Status Create(std::shared_ptr<const Checkpoint> checkpoint, const EngineOptions& options,
              std::unique_ptr<Backend>* backend) {
  QTTS_RETURN_IF_ERROR(CheckTimeout());
  QTTS_ASSIGN_OR_RETURN(const CudaOptions backend_options, BackendOptions(options));
  QTTS_ASSIGN_OR_RETURN(auto created, CudaBackend::Create(std::move(checkpoint), backend_options));
  QTTS_RETURN_IF_ERROR(created->AllocateFirstPages());
  *backend = std::move(created);
  return Status::Ok();
}

Status Check(const Checkpoint& checkpoint, const EngineOptions& options) {
  QTTS_ASSIGN_OR_RETURN(const CudaOptions backend_options, BackendOptions(options));
  return ChooseDevice(checkpoint, backend_options).status();
}

Status Capacity(const Checkpoint& checkpoint, const EngineOptions& options, DeviceCapacity* capacity) {
  QTTS_ASSIGN_OR_RETURN(const CudaOptions backend_options, BackendOptions(options));
  QTTS_ASSIGN_OR_RETURN(*capacity, CapacityOf(checkpoint, backend_options));
  return Status::Ok();
}

Status Count(int* devices) {
  QTTS_ASSIGN_OR_RETURN(*devices, CountDevices());
  return Status::Ok();
}

Status CreateDecoder(std::shared_ptr<const Checkpoint>
                         checkpoint,  // NOLINT(performance-unnecessary-value-param): the module's interface
                     const EngineOptions& options, std::unique_ptr<SpeechDecoder>* decoder) {
  QTTS_RETURN_IF_ERROR(CheckTimeout());
  const CodecPrecision precision =
      options.precision == qtts::Precision::kF32 ? CodecPrecision::kF32 : CodecPrecisionOf(options);
  QTTS_ASSIGN_OR_RETURN(*decoder, CreateSpeechDecoder(*checkpoint, precision, options.gpu));
  return Status::Ok();
}

}  // namespace
}  // namespace qtts::cuda

extern "C" {
extern __attribute__((visibility("default"))) const qtts::DeviceModule qtts_device_module_v9;
const qtts::DeviceModule qtts_device_module_v9 = {qtts::DeviceModuleBuild(), qtts::SetLogSink,  qtts::cuda::Create,
                                                  qtts::cuda::Check,         qtts::cuda::Count, qtts::cuda::Capacity,
                                                  qtts::cuda::CreateDecoder};
}
