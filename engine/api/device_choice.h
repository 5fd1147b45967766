// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_API_DEVICE_CHOICE_H_
#define QTTS_API_DEVICE_CHOICE_H_

#include <string>
#include <utility>

#include "base/log.h"
#include "cpu/arithmetic.h"
#include "cpu/bf16_kernels.h"
#include "qtts/engine_options.h"
#include "qtts/status.h"

// Choice of the device by EngineOptions. The only place that makes it.
namespace qtts {

// Returns the arithmetic of the CPU backend for a precision.
cpu::Arithmetic ArithmeticOf(Precision precision);

// Returns the errors that depend on the options and the CPU's features only.
Status CheckOptions(const EngineOptions& options, bool cpu_has_bf16 = cpu::HasBF16Products());

// Returns true if only a GPU can serve these options.
bool NeedsGpu(const EngineOptions& options, bool cpu_has_bf16 = cpu::HasBF16Products());

// Returns true if the options take the CPU. No GPU is tried then. precision=int8 takes a GPU only where device names
// it.
bool NeedsCpu(const EngineOptions& options);

// Returns the options with the GPU as their device if they leave the choice.
EngineOptions OnGpu(EngineOptions options);

// Returns true if device=auto may fall back to the CPU after this error of the GPU: the GPU cannot do it, but the model
// is fine.
bool CpuMayServe(const Status& status);

// Returns the GPU's error for the user. If device=auto may not fall back to the CPU, it says why.
Status ExplainGpuError(const EngineOptions& options, const Status& status);

// Returns the warning for device=auto that uses the CPU after this error of the GPU; empty if there is no NVIDIA GPU to
// pass over.
std::string PassedOverWarning(const Status& status, bool has_gpu);

// Logs the use of the CPU after this error: as a warning if it passes over a GPU, once per process; else, and later, at
// level info. Returns the warning.
std::string NoteCpuInstead(const Status& status);

// Logs at level info why NeedsCpu() chose the CPU, unless the user named it.
void LogCpuChoice(const EngineOptions& options);

// Returns the result of `gpu` (OnGpu() to Result<T>) or of `cpu`, as the options say. If they leave the choice, `cpu`
// is used after the GPU has failed; `passed_over` is then set to PassedOverWarning().
template <typename T, typename Gpu, typename Cpu>
Result<T> OnChosenDevice(const EngineOptions& options, const Gpu& gpu, const Cpu& cpu,
                         std::string* passed_over = nullptr) {
  if (NeedsCpu(options)) {
    LogCpuChoice(options);
  } else if (options.device != Device::kCpu) {
    Result<T> made = gpu(OnGpu(options));
    if (made.ok()) return made;
    if (NeedsGpu(options) || !CpuMayServe(made.status())) return ExplainGpuError(options, made.status());
    std::string warning = NoteCpuInstead(made.status());
    if (passed_over != nullptr) *passed_over = std::move(warning);
  }
  return cpu();
}

}  // namespace qtts

#endif  // QTTS_API_DEVICE_CHOICE_H_
