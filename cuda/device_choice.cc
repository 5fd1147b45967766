// SPDX-License-Identifier: LGPL-2.1-or-later
#include "device_choice.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "backend/device_module.h"
#include "codec/kernels.h"
#include "cuda_backend.h"
#include "gemm/cublas_lt.h"
#include "language_model.h"
#include "paths/persistent/persistent_frame.h"
#include "qtts/engine_options.h"
#include "runtime/cuda_error.h"
#include "runtime/device.h"
#include "runtime/device_wait.h"
#include "runtime/pretended_card.h"
#include "speech_decoder.h"

namespace qtts::cuda {
namespace {

constexpr int kFirstCapability = 80;
// Minimum free device memory besides what the load and the utterances hold: CUDA's graphs, kernels' code, the voice
// encoder.
constexpr size_t kWorkingBytes = size_t{512} << 20;

std::string Gigabytes(size_t bytes) {
  std::string text = std::to_string(static_cast<double>(bytes) / 1e9);
  return text.substr(0, text.find('.') + 2) + " GB";
}

Status Unavailable(const std::string& what) {
  return Status::DeviceUnavailable(kDeviceErrorBegin + what + kDeviceErrorEnd);
}

Status CannotBeUsed(const std::string& device, cudaError_t error) {
  if (IsFault(error) || error == cudaErrorMemoryAllocation) return CudaStatus(error, "a start on " + device);
  return Unavailable(device + " cannot be used: " + cudaGetErrorString(error));
}

// The card that `device` is or pretends to be, for the error if the build has no code for it.
Result<std::string> NameOf(int device, int* capability) {
  cudaDeviceProp properties = {};
  QTTS_RETURN_IF_CUDA_ERROR(cudaGetDeviceProperties(&properties, device), "asking for the device");
  *capability = 10 * properties.major + properties.minor;
  if (!Pretends()) return std::string(properties.name);
  const PretendedCard* const card = FindPretendedCard();
  if (card == nullptr) {
    return Status::InvalidArgument("QTTS_CUDA_PRETEND is \"" + std::string(std::getenv("QTTS_CUDA_PRETEND")) +
                                   "\"; it can be " + PretendedCardNames());
  }
  *capability = 10 * card->major + card->minor;
  return std::string(card->name) + ", pretended on " + properties.name;
}

// Makes `device` current and checks that it can be used. Returns its description.
Result<const DeviceDescription*> PrepareDevice(int device) {
  if (const cudaError_t error = UseDevice(device); !Succeeds(error)) {
    return CannotBeUsed("GPU " + std::to_string(device), error);
  }
  int capability = 0;
  QTTS_ASSIGN_OR_RETURN(const std::string name, NameOf(device, &capability));
  if (capability < kFirstCapability) {
    return Unavailable(name + " has compute capability " + std::to_string(capability / 10) + "." +
                       std::to_string(capability % 10) + ", needed is 8.0 or later");
  }
  codec::DeviceTraits traits;
  const DeviceDescription* description = nullptr;
  cudaError_t error = codec::PrepareKernels(&traits);
  if (error == cudaSuccess) error = DescribeDevice(&description);
  if (error == cudaErrorNoKernelImageForDevice) {
    (void)Succeeds(error);
    return Unavailable(name + " needs the GPU backend built with -Dcuda-arch=" + std::to_string(capability) +
                       ", this one was built with " QTTS_CUDA_ARCHITECTURES);
  }
  if (!Succeeds(error)) return CannotBeUsed(name, error);
  return description;
}

// Refuses a device that is nearly full before a kernel of the backend is touched: the first touch loads the kernel's
// code, and where that finds no memory, later launches fail too.
Status CheckThereIsMemory(int device) {
  if (const cudaError_t error = UseDevice(device); !Succeeds(error)) {
    return CannotBeUsed("GPU " + std::to_string(device), error);
  }
  int capability = 0;
  QTTS_ASSIGN_OR_RETURN(const std::string name, NameOf(device, &capability));
  size_t free = 0, total = 0;
  if (const cudaError_t error = MeasureMemory(&free, &total); !Succeeds(error)) return CannotBeUsed(name, error);
  if (free >= kWorkingBytes || capability < kFirstCapability) return Status::Ok();
  return Status::ResourceExhausted("device=cuda: " + name + " has " + Gigabytes(free) + " free of " + Gigabytes(total) +
                                   ", less than any model needs; close other programs that use it, or choose " +
                                   "device=cpu");
}

// The same as PrepareDevice(), with the device's free memory.
Result<DeviceCapacity> MeasureDevice(int device) {
  QTTS_ASSIGN_OR_RETURN(const DeviceDescription* const description, PrepareDevice(device));
  DeviceCapacity capacity;
  capacity.device = description->FullName();
  capacity.compute_capability = description->capability_text();
  capacity.bandwidth = description->bandwidth;
  if (const cudaError_t error = MeasureMemory(&capacity.free_bytes, &capacity.device_bytes); !Succeeds(error)) {
    return CannotBeUsed(capacity.device, error);
  }
  return capacity;
}

// Device memory that an engine takes, or the speech tokenizer's decoder alone.
struct Needs {
  size_t model_bytes = 0;
  size_t voice_bytes = 0;  // of an utterance
  int voices = 0;          // utterances that must fit
  size_t frame_bytes = 0;  // read for a frame of one utterance

  size_t bytes() const { return model_bytes + voice_bytes * static_cast<size_t>(voices); }
};

// Returns the needs of an engine of `voices` on options.device, the current one.
Result<Needs> EngineNeeds(const Checkpoint& checkpoint, CudaOptions options, int voices) {
  options.max_slots = voices;
  QTTS_ASSIGN_OR_RETURN(const LoadMemory memory, CudaBackend::CountMemory(checkpoint, options));
  return Needs{.model_bytes = std::max(memory.max_held, memory.held + kWorkingBytes),
               .voice_bytes = memory.voice_bytes,
               .voices = voices,
               .frame_bytes = memory.frame_bytes};
}

// How frames of one utterance are computed on the current device.
Result<std::string> PathOf(const Checkpoint& checkpoint, const CudaOptions& options) {
  if (options.path == FramePath::kGraph) return std::string("graph (QTTS_CUDA_PATH)");
  if (options.products == ManyRowsProducts::kLibrary) return std::string("graph (QTTS_CUDA_PRODUCTS)");
  if (PrefersLibrary(options) && CublasLt::Open().ok()) return std::string("graph (products by cuBLASLt)");
  const DeviceDescription* device = nullptr;
  QTTS_RETURN_IF_CUDA_ERROR(DescribeDevice(&device), "asking for the device");
  const Status status = PersistentFrame::CheckSupport(checkpoint.config(), options.precision, options.weights, *device);
  return status.ok() ? std::string("persistent") : "graph (" + status.message() + ")";
}

// Returns the needs of the largest engine of up to options.max_slots voices that `free_bytes` of options.device, the
// current one, have room for; of one voice if there is none.
Result<Needs> LargestNeeds(const Checkpoint& checkpoint, const CudaOptions& options, size_t free_bytes) {
  QTTS_ASSIGN_OR_RETURN(Needs largest, EngineNeeds(checkpoint, options, options.max_slots));
  if (largest.bytes() <= free_bytes || options.max_slots == 1) return largest;
  QTTS_ASSIGN_OR_RETURN(largest, EngineNeeds(checkpoint, options, 1));
  if (largest.bytes() > free_bytes) return largest;
  // More voices have more rows, too: each number is counted.
  for (int too_many = options.max_slots; largest.voices + 1 < too_many;) {
    const int voices = largest.voices + (too_many - largest.voices) / 2;
    QTTS_ASSIGN_OR_RETURN(const Needs needs, EngineNeeds(checkpoint, options, voices));
    if (needs.bytes() <= free_bytes) {
      largest = needs;
    } else {
      too_many = voices;
    }
  }
  return largest;
}

// `int8`: the needs with precision=int8, or null.
Status CheckMemory(const Needs& needs, const DeviceCapacity& device, const Needs* int8 = nullptr) {
  if (device.free_bytes >= needs.bytes()) return Status::Ok();
  return Status::ResourceExhausted("device=cuda: the model needs about " + Gigabytes(needs.bytes()) +
                                   " of GPU memory, " + device.device + " has " + Gigabytes(device.free_bytes) +
                                   " free of " + Gigabytes(device.device_bytes) +
                                   "; close other programs that use it, choose " +
                                   (int8 != nullptr && device.free_bytes >= int8->bytes()
                                        ? "precision=int8 with device=cuda (" + Gigabytes(int8->bytes()) + "), "
                                        : "") +
                                   "a smaller model or device=cpu");
}

// Checks that options.device, the current one, has memory for `needs` of an engine. If it has not, the error names int8
// where one voice of that fits.
Status CheckEngineMemory(const Checkpoint& checkpoint, const CudaOptions& options, const Needs& needs,
                         const DeviceCapacity& device) {
  if (device.free_bytes >= needs.bytes() || options.weights == WeightForm::kInt8) return CheckMemory(needs, device);
  CudaOptions smaller = options;
  smaller.precision = Precision::kBF16;
  smaller.weights = WeightForm::kInt8;
  const Result<Needs> int8 = EngineNeeds(checkpoint, smaller, 1);
  return CheckMemory(needs, device, int8.ok() ? &*int8 : nullptr);
}

// The first of the devices that `device` allows for which `use` succeeds.
template <typename Use>
auto OnDevice(int device, const Use& use) -> decltype(use(device)) {
  QTTS_ASSIGN_OR_RETURN(const int devices, CountDevices());
  if (device >= devices) {
    return Status::InvalidArgument("cuda-device-id=" + std::to_string(device) + ": this machine's GPUs are 0 to " +
                                   std::to_string(devices - 1) + "; -1 takes the first that can hold the model");
  }
  if (device >= 0) return use(device);
  for (int i = 0; i + 1 < devices; ++i) {
    if (auto used = use(i); used.ok()) return used;
  }
  return use(devices - 1);
}

CudaOptions On(int device, const CudaOptions& options) {
  CudaOptions on = options;
  on.device = device;
  return on;
}

}  // namespace

Result<int> CountDevices() {
  int driver = 0;
  int runtime = 0;
  if (!Succeeds(cudaDriverGetVersion(&driver)) || driver == 0) {
    return Unavailable("there is no NVIDIA driver (libcuda.so.1): install it");
  }
  (void)Succeeds(cudaRuntimeGetVersion(&runtime));
  int devices = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&devices); !Succeeds(error)) {
    if (error == cudaErrorInsufficientDriver) {
      return Unavailable("the NVIDIA driver is too old: it is for CUDA " + std::to_string(driver / 1000) + "." +
                         std::to_string(driver % 1000 / 10) + ", needed is " + std::to_string(runtime / 1000) +
                         ".0 or later: update it, or build with an earlier nvcc");
    }
    return CannotBeUsed("the GPU", error);
  }
  if (devices == 0) return Unavailable("no CUDA-capable device is detected");
  return devices;
}

Result<DeviceChoice> ChooseDevice(const Checkpoint& checkpoint, const CudaOptions& options) {
  return OnDevice(options.device, [&](int number) -> Result<DeviceChoice> {
    QTTS_RETURN_IF_ERROR(CheckThereIsMemory(number));
    QTTS_ASSIGN_OR_RETURN(const DeviceCapacity capacity, MeasureDevice(number));
    QTTS_ASSIGN_OR_RETURN(const Needs needs, LargestNeeds(checkpoint, On(number, options), capacity.free_bytes));
    QTTS_RETURN_IF_ERROR(CheckEngineMemory(checkpoint, On(number, options), needs, capacity));
    if (needs.voices < options.max_slots && options.max_slots > kDefaultVoices) {
      QTTS_ASSIGN_OR_RETURN(const Needs all, EngineNeeds(checkpoint, On(number, options), options.max_slots));
      return Status::ResourceExhausted("device=cuda: voices=" + std::to_string(options.max_slots) + " need about " +
                                       Gigabytes(all.bytes()) + " of GPU memory, " + capacity.device + " has " +
                                       Gigabytes(capacity.free_bytes) +
                                       " free; choose voices=" + std::to_string(needs.voices) + " or fewer");
    }
    return DeviceChoice{.device = number, .voices = needs.voices};
  });
}

Result<int> ChooseDecoderDevice(const Checkpoint& checkpoint, CodecPrecision precision, int device) {
  return OnDevice(device, [&](int number) -> Result<int> {
    QTTS_RETURN_IF_ERROR(CheckThereIsMemory(number));
    QTTS_ASSIGN_OR_RETURN(const DeviceCapacity capacity, MeasureDevice(number));
    QTTS_ASSIGN_OR_RETURN(const size_t bytes, CountDecoderMemory(checkpoint, precision));
    QTTS_RETURN_IF_ERROR(CheckMemory({.model_bytes = bytes + kWorkingBytes}, capacity));
    return number;
  });
}

Result<DeviceCapacity> CapacityOf(const Checkpoint& checkpoint, const CudaOptions& options) {
  return OnDevice(options.device, [&](int number) -> Result<DeviceCapacity> {
    const CudaOptions on = On(number, options);
    QTTS_ASSIGN_OR_RETURN(DeviceCapacity capacity, MeasureDevice(number));
    QTTS_ASSIGN_OR_RETURN(const Needs needs, LargestNeeds(checkpoint, on, capacity.free_bytes));
    capacity.model_bytes = needs.model_bytes;
    capacity.voice_bytes = needs.voice_bytes;
    capacity.voices = needs.bytes() <= capacity.free_bytes ? needs.voices : 0;
    QTTS_ASSIGN_OR_RETURN(capacity.path, PathOf(checkpoint, options));
    capacity.frame_bytes = needs.frame_bytes;
    return capacity;
  });
}

}  // namespace qtts::cuda
