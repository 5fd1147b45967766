// SPDX-License-Identifier: LGPL-2.1-or-later
#include "device_choice.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "attention/attention.h"
#include "backend/device_module.h"
#include "codec/codec.h"
#include "codec/kernels.h"
#include "gemm/cublas_lt.h"
#include "language_model.h"
#include "paths/persistent/persistent_frame.h"
#include "qtts/engine_options.h"
#include "qtts/model_info.h"
#include "runtime/cuda_error.h"
#include "runtime/device.h"
#include "runtime/device_wait.h"
#include "runtime/pretended_card.h"

namespace qtts::cuda {
namespace {

constexpr int kFirstCapability = 80;
// Minimum free device memory besides the weights: scratch and pages of few utterances, CUDA's graphs; while weights are
// packed, their originals.
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

// The same, with the device's free memory.
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

  size_t bytes() const { return model_bytes + voice_bytes * static_cast<size_t>(voices); }
};

CodecSizes CodecSizesOf(const Checkpoint& checkpoint, CodecPrecision precision, int rows) {
  return EstimateCodecSizes(checkpoint.config().codec, checkpoint.codec(), checkpoint.Info().codec_parameters,
                            precision, rows);
}

// Returns the needs of the speech tokenizer's decoder, in the precision that takes most.
Needs DecoderNeeds(const Checkpoint& checkpoint) {
  return {.model_bytes = CodecSizesOf(checkpoint, CodecPrecision::kExact, 1).weight_bytes + kWorkingBytes};
}

size_t LayerWeights(const TransformerConfig& c) {
  const int of_hidden = 2 * (c.q_width() + c.kv_width()) + 3 * c.intermediate_size;
  return static_cast<size_t>(c.num_layers) * static_cast<size_t>(c.hidden_size) * static_cast<size_t>(of_hidden);
}

size_t HeadWeights(const ModelConfig& config, int code_groups) {
  const auto weights = [](int vocab, const TransformerConfig& c) {
    return static_cast<size_t>(vocab) * static_cast<size_t>(c.hidden_size);
  };
  return weights(config.talker.vocab_size, config.talker.transformer) +
         static_cast<size_t>(code_groups - 1) * weights(config.predictor.vocab_size, config.predictor.transformer);
}

// Up to kDefaultVoices utterances have room in kWorkingBytes to begin with. More are counted: their pages, their
// codec's state and the rows of a frame.
Needs EngineNeeds(const Checkpoint& checkpoint, const CudaOptions& options, int voices) {
  const ModelInfo info = checkpoint.Info();
  const ModelConfig& config = checkpoint.config();
  const TransformerConfig& talker = config.talker.transformer;
  const TransformerConfig& predictor = config.predictor.transformer;
  const size_t element = ElementBytes(options.precision);
  const auto key_value_bytes = [&](const TransformerConfig& c, int64_t positions) {
    return static_cast<size_t>(2 * positions * c.num_layers * c.kv_width()) * element;
  };
  const auto rows = static_cast<size_t>(LanguageModel::RowsFor(voices));
  const size_t codec_rows = std::min<size_t>(rows, kCodecRows);
  const CodecSizes codec =
      CodecSizesOf(checkpoint, options.precision == Precision::kF32 ? CodecPrecision::kF32 : options.codec_precision,
                   static_cast<int>(codec_rows));
  Needs needs;
  needs.model_bytes = static_cast<size_t>(info.talker_parameters) * element + codec.weight_bytes +
                      codec_rows * codec.row_bytes + kWorkingBytes;
  // Ten seconds and a prompt begin their second page.
  needs.voice_bytes = key_value_bytes(talker, int64_t{2} * kPagePositions) + codec.state_bytes;
  if (options.products == ManyRowsProducts::kLibrary) {
    int widest = std::max(config.talker.vocab_size, config.predictor.vocab_size);
    for (const TransformerConfig& c : {talker, predictor}) {
      widest = std::max({widest, c.q_width() + 2 * c.kv_width(), 2 * c.intermediate_size});
    }
    needs.model_bytes += CublasLt::kWorkspaceBytes +
                         std::max<size_t>(2 * rows, options.prompt_rows) * static_cast<size_t>(widest) * sizeof(float);
  }
  // The second, swizzled copy of some or all weights. Only devices with products of warpgroups have it.
  const bool many = voices > kDefaultVoices;
  if (options.precision == Precision::kBF16 && options.products != ManyRowsProducts::kLibrary && rows >= kManyRows) {
    needs.model_bytes += element * LayerWeights(predictor);
    if (many) needs.model_bytes += element * (LayerWeights(talker) + HeadWeights(config, info.code_groups));
  }
  if (!many) return needs;
  needs.voices = voices;
  // Bytes of a row: the predictor's page, the logits, partial results of attention, arrays between kernels, its sound.
  const size_t row_bytes =
      key_value_bytes(predictor, info.code_groups) +
      sizeof(float) *
          static_cast<size_t>(config.talker.vocab_size + config.predictor.vocab_size +
                              16 * talker.num_heads * (talker.head_dim + 2) +
                              4 * (talker.intermediate_size + predictor.intermediate_size) + info.samples_per_frame);
  needs.model_bytes += rows * row_bytes;
  return needs;
}

// Weights that a frame of one utterance reads: of the talker once, of the code predictor for each further code, of the
// codec once.
size_t FrameBytes(const Checkpoint& checkpoint, const CudaOptions& options) {
  const ModelConfig& config = checkpoint.config();
  const TransformerConfig& talker = config.talker.transformer;
  const TransformerConfig& predictor = config.predictor.transformer;
  const int groups = config.talker.num_code_groups;
  size_t weights =
      LayerWeights(talker) + static_cast<size_t>(groups - 1) * LayerWeights(predictor) + HeadWeights(config, groups);
  if (talker.hidden_size != predictor.hidden_size) {
    weights += static_cast<size_t>(talker.hidden_size) * static_cast<size_t>(predictor.hidden_size);
  }
  const CodecPrecision codec = options.precision == Precision::kF32 ? CodecPrecision::kF32 : options.codec_precision;
  return ElementBytes(options.precision) * weights + CodecSizesOf(checkpoint, codec, 1).weight_bytes;
}

// How frames of one utterance are computed on the current device.
Result<std::string> PathOf(const Checkpoint& checkpoint, const CudaOptions& options) {
  if (options.path == FramePath::kGraph) return std::string("graph (QTTS_CUDA_PATH)");
  if (options.products == ManyRowsProducts::kLibrary) return std::string("graph (QTTS_CUDA_PRODUCTS)");
  const DeviceDescription* device = nullptr;
  QTTS_RETURN_IF_CUDA_ERROR(DescribeDevice(&device), "asking for the device");
  const Status status = PersistentFrame::CheckSupport(checkpoint.config(), options.precision, *device);
  return status.ok() ? std::string("persistent") : "graph (" + status.message() + ")";
}

int VoicesThatFit(const Needs& needs, const DeviceCapacity& device) {
  if (device.free_bytes < needs.model_bytes || needs.voice_bytes == 0) return 0;
  return static_cast<int>(std::min<size_t>((device.free_bytes - needs.model_bytes) / needs.voice_bytes, kMostVoices));
}

Status CheckMemory(const Needs& needs, const DeviceCapacity& device) {
  if (device.free_bytes >= needs.bytes()) return Status::Ok();
  const int fit = VoicesThatFit(needs, device);
  if (fit > kDefaultVoices) {
    return Status::ResourceExhausted("device=cuda: voices=" + std::to_string(needs.voices) + " need about " +
                                     Gigabytes(needs.bytes()) + " of GPU memory, " + device.device + " has " +
                                     Gigabytes(device.free_bytes) + " free; choose voices=" + std::to_string(fit) +
                                     " or fewer");
  }
  return Status::ResourceExhausted("device=cuda: the model needs about " + Gigabytes(needs.bytes()) +
                                   " of GPU memory, " + device.device + " has " + Gigabytes(device.free_bytes) +
                                   " free of " + Gigabytes(device.device_bytes) +
                                   "; close other programs that use it, choose a smaller model or device=cpu" +
                                   (needs.voices > kDefaultVoices ? ", or fewer voices" : ""));
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

Result<int> ChooseDeviceFor(const Needs& needs, int device) {
  return OnDevice(device, [&](int number) -> Result<int> {
    QTTS_ASSIGN_OR_RETURN(const DeviceCapacity capacity, MeasureDevice(number));
    QTTS_RETURN_IF_ERROR(CheckMemory(needs, capacity));
    return number;
  });
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

Result<int> ChooseDevice(const Checkpoint& checkpoint, const CudaOptions& options) {
  return ChooseDeviceFor(EngineNeeds(checkpoint, options, options.max_slots), options.device);
}

Result<int> ChooseDecoderDevice(const Checkpoint& checkpoint, int device) {
  return ChooseDeviceFor(DecoderNeeds(checkpoint), device);
}

Result<DeviceCapacity> CapacityOf(const Checkpoint& checkpoint, const CudaOptions& options) {
  return OnDevice(options.device, [&](int number) -> Result<DeviceCapacity> {
    QTTS_ASSIGN_OR_RETURN(DeviceCapacity capacity, MeasureDevice(number));
    Needs needs = EngineNeeds(checkpoint, options, options.max_slots);
    // Fewer voices have fewer rows, which take memory too.
    const int fit = VoicesThatFit(needs, capacity);
    if (fit < options.max_slots) needs = EngineNeeds(checkpoint, options, fit);
    capacity.model_bytes = needs.model_bytes;
    capacity.voice_bytes = needs.voice_bytes;
    capacity.voices = VoicesThatFit(needs, capacity);
    QTTS_ASSIGN_OR_RETURN(capacity.path, PathOf(checkpoint, options));
    capacity.frame_bytes = FrameBytes(checkpoint, options);
    return capacity;
  });
}

}  // namespace qtts::cuda
