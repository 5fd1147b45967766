// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_API_DEVICE_CHOICE_H_
#define QTTS_API_DEVICE_CHOICE_H_

#include "backend/gpu_module.h"
#include "base/log.h"
#include "cpu/arithmetic.h"
#include "cpu/bf16_kernels.h"
#include "qtts/engine_options.h"
#include "qtts/status.h"

// What EngineOptions say of the device: one place for whoever puts something on one.
namespace qtts {

// How the CPU computes with a precision.
cpu::Arithmetic ArithmeticOf(Precision precision);

// The errors that can be told from the options and the processor alone.
Status CheckOptions(const EngineOptions& options, bool cpu_has_bf16 = cpu::HasBF16Products());

// Whether nothing but a GPU will do.
bool NeedsGpu(const EngineOptions& options, bool cpu_has_bf16 = cpu::HasBF16Products());

// Whether nothing but the CPU will do: no GPU is asked for.
bool NeedsCpu(const EngineOptions& options);

GpuOptions GpuOptionsOf(const EngineOptions& options);

// Whether device=auto may take the CPU instead: the GPU cannot do it, rather than the model being wrong.
bool CpuMayServe(const Status& status);

// An error of the GPU, for the user: where device=auto may not take the CPU, why.
Status ExplainGpuError(const EngineOptions& options, const Status& status);

// Where NeedsCpu(), says at level info why the CPU is taken, unless the user named it.
void LogCpuChoice(const EngineOptions& options);

// What `gpu` (GpuOptions to Result<T>) makes, or `cpu` where the options say so, or leave the choice and the GPU
// cannot.
template <typename T, typename Gpu, typename Cpu>
Result<T> OnChosenDevice(const EngineOptions& options, const Gpu& gpu, const Cpu& cpu) {
  if (NeedsCpu(options)) {
    LogCpuChoice(options);
  } else if (options.device != Device::kCpu) {
    Result<T> made = gpu(GpuOptionsOf(options));
    if (made.ok()) return made;
    if (NeedsGpu(options) || !CpuMayServe(made.status())) return ExplainGpuError(options, made.status());
    Log(LogLevel::kInfo, "taking the CPU: " + made.status().message());
  }
  return cpu();
}

}  // namespace qtts

#endif  // QTTS_API_DEVICE_CHOICE_H_
