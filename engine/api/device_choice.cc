// SPDX-License-Identifier: LGPL-2.1-or-later
#include "api/device_choice.h"

#include <atomic>
#include <string>

#include "api/backend_module.h"
#include "api/gpu_presence.h"
#include "backend/device_module.h"

namespace qtts {
namespace {

// The device that kAuto tries before the CPU.
constexpr Device kGpu = Device::kCuda;

std::string Setting(Device device) { return "device=" + std::string(DeviceName(device)); }
std::string Setting(Precision precision) { return "precision=" + std::string(PrecisionName(precision)); }

Status CheckCpuOnly(const EngineOptions& options, const std::string& setting, const std::string& leave) {
  if (options.gpu < 0) return Status::Ok();
  return Status::InvalidArgument("cuda-device-id=" + std::to_string(options.gpu) + " names a GPU, but " + setting +
                                 ": leave it at -1, or choose " + leave);
}

}  // namespace

cpu::Arithmetic ArithmeticOf(Precision precision) {
  switch (precision) {
    case Precision::kBF16:
      return cpu::Arithmetic::kBF16;
    case Precision::kInt8:
      return cpu::Arithmetic::kInt8;
    case Precision::kInt4:
      return cpu::Arithmetic::kInt4;
    case Precision::kAuto:
    case Precision::kF32:
      break;
  }
  return cpu::Arithmetic::kF32;
}

Status CheckOptions(const EngineOptions& options, bool cpu_has_bf16) {
  if (options.lead_frames < 1) return Status::InvalidArgument("lead_frames must be at least 1");
  if (options.voices < 1 || options.voices > kMostVoices) {
    return Status::InvalidArgument("voices=" + std::to_string(options.voices) + ": must be 1 to " +
                                   std::to_string(kMostVoices));
  }
  if (options.gpu < -1) {
    return Status::InvalidArgument("cuda-device-id must be -1 (any GPU) or the number of a GPU, not " +
                                   std::to_string(options.gpu));
  }
  if (options.codec_precision == CodecPrecision::kFast) {
    if (options.device == Device::kCpu || NeedsCpu(options)) {
      return Status::InvalidArgument(
          "codec-precision=fast is arithmetic of the GPU; the codec of the CPU follows precision: choose "
          "codec-precision=exact, with precision=int8 if speech has to be made faster");
    }
    if (options.precision == Precision::kF32) {
      return Status::InvalidArgument(
          "codec-precision=fast is for precision=auto or bf16; precision=f32 computes all in F32: choose "
          "codec-precision=exact");
    }
  }
  if (NeedsCpu(options)) {
    const std::string setting = Setting(options.precision);
    if (IsGpu(options.device)) {
      return Status::InvalidArgument(setting +
                                     " is arithmetic of the CPU; the GPU has bf16, f32 and int8: choose one of them, "
                                     "or device=cpu");
    }
    if (options.device == Device::kAuto && options.precision == Precision::kInt8) {
      return CheckCpuOnly(options, setting + " with " + Setting(Device::kAuto) + " takes the CPU", Setting(kGpu));
    }
    if (options.device == Device::kAuto) {
      return CheckCpuOnly(options, setting + " is arithmetic of the CPU", "precision=auto");
    }
  }
  if (options.device != Device::kCpu) return Status::Ok();
  if (options.precision == Precision::kBF16 && !cpu_has_bf16) {
    return Status::InvalidArgument(
        "precision=bf16 needs a GPU, or a processor that multiplies BF16, which this one does not: choose "
        "precision=auto, precision=int8, which is faster, or " +
        Setting(kGpu));
  }
  return CheckCpuOnly(options, Setting(Device::kCpu), Setting(kGpu));
}

bool NeedsGpu(const EngineOptions& options, bool cpu_has_bf16) {
  return IsGpu(options.device) || options.codec_precision == CodecPrecision::kFast ||
         (options.precision == Precision::kBF16 && !cpu_has_bf16);
}

bool NeedsCpu(const EngineOptions& options) {
  return options.precision == Precision::kInt4 || (options.precision == Precision::kInt8 && !IsGpu(options.device));
}

EngineOptions OnGpu(EngineOptions options) {
  if (options.device == Device::kAuto) options.device = kGpu;
  return options;
}

bool CpuMayServe(const Status& status) {
  return status.code() == StatusCode::kDeviceUnavailable || status.code() == StatusCode::kResourceExhausted ||
         status.code() == StatusCode::kUnsupported;
}

Status ExplainGpuError(const EngineOptions& options, const Status& status) {
  if (IsGpu(options.device) || !CpuMayServe(status)) return status;
  if (options.codec_precision == CodecPrecision::kFast) {
    return {status.code(), "codec-precision=fast needs a GPU; codec-precision=exact does not: " + status.message()};
  }
  return {status.code(), "precision=bf16 needs a GPU, or a processor that multiplies BF16; precision=auto does not: " +
                             status.message()};
}

std::string PassedOverWarning(const Status& status, bool has_gpu) {
  if (!has_gpu) return "";
  std::string reason = status.message();
  // The words of device=cuda.
  const std::string begin = kDeviceErrorBegin;
  const std::string end = kDeviceErrorEnd;
  if (reason.starts_with(begin)) reason.erase(0, begin.size());
  if (reason.ends_with(end)) reason.erase(reason.size() - end.size());
  return "device=auto uses the CPU although there is an NVIDIA GPU: " + reason +
         ". device=cpu chooses the CPU without this warning";
}

std::string NoteCpuInstead(const Status& status) {
  static std::atomic<bool> warned = false;
  std::string warning = PassedOverWarning(status, CountDevices(kGpu) > 0 || HasNvidiaGpu());
  if (!warning.empty() && !warned.exchange(true)) {
    Log(LogLevel::kWarning, warning);
  } else {
    Log(LogLevel::kInfo, "using the CPU: " + status.message());
  }
  return warning;
}

void LogCpuChoice(const EngineOptions& options) {
  if (options.device == Device::kCpu || !LogEnabled(LogLevel::kInfo)) return;
  const bool is_int8 = options.precision == Precision::kInt8;
  Log(LogLevel::kInfo, "using the CPU: " + Setting(options.precision) +
                           (is_int8 ? " takes a GPU only with " + Setting(kGpu) : " is CPU arithmetic"));
}

}  // namespace qtts
