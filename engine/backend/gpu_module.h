// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_BACKEND_GPU_MODULE_H_
#define QTTS_BACKEND_GPU_MODULE_H_

#include <memory>

#include "backend/backend.h"
#include "backend/speech_decoder.h"
#include "build_config.h"
#include "checkpoint/checkpoint.h"
#include "qtts/log.h"
#include "qtts/status.h"

// What the engine and the GPU module, a shared library that is opened only when asked for, know of each
// other: one symbol, qtts_gpu_module_v5, a GpuModule. C++ types go across, so both must come from one
// build: `build` says which.
namespace qtts {

struct GpuOptions {
  bool f32 = false;  // F32 arithmetic, slow, instead of BF16
  int device = -1;   // as CUDA counts them; -1 = the first that can hold the model
};

struct GpuModule {
  // Equal to GpuModuleBuild() on the other side, or nothing else may be called.
  const char* build;
  // Where the module's log goes: it has a sink of its own (SetLogSink()), since it shares no variables with the engine.
  void (*set_log_sink)(const LogSink* sink);
  // The model on a GPU. Errors: kInvalidArgument (no device of that number), kDeviceUnavailable (no driver, no or
  // too old a device), kResourceExhausted (too little memory), kUnsupported.
  Status (*create)(std::shared_ptr<const Checkpoint> checkpoint, const GpuOptions& options,
                   std::unique_ptr<Backend>* backend);
  // The errors of `create` that can be told without loading the model.
  Status (*check)(const Checkpoint& checkpoint, const GpuOptions& options);
  // The model's speech tokenizer alone. Errors: as `create`.
  Status (*create_speech_decoder)(std::shared_ptr<const Checkpoint> checkpoint, const GpuOptions& options,
                                  std::unique_ptr<SpeechDecoder>* decoder);
};

inline constexpr const char* kGpuModuleSymbol = "qtts_gpu_module_v5";

// Identifies the interface and the compiler.
constexpr const char* GpuModuleBuild() { return "qttssrc " QTTS_VERSION " " __VERSION__; }

}  // namespace qtts

#endif  // QTTS_BACKEND_GPU_MODULE_H_
