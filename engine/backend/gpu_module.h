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

// The interface between the engine and the GPU module, a shared library that is opened only on demand: one symbol,
// qtts_gpu_module_v5, of type GpuModule. C++ types cross it, so both sides must come from one build, which `build`
// identifies.
namespace qtts {

struct GpuOptions {
  bool f32 = false;  // F32 arithmetic, slow, instead of BF16
  int device = -1;   // index in CUDA's order; -1 = the first that can hold the model
};

struct GpuModule {
  // Must equal GpuModuleBuild() of the engine; otherwise nothing else may be called.
  const char* build;
  // Sets the module's log sink. The module needs its own (SetLogSink()), since it shares no variables with the engine.
  void (*set_log_sink)(const LogSink* sink);
  // Creates the backend of the model on a GPU. Errors: kInvalidArgument (no such device), kDeviceUnavailable (no
  // driver, no device or one that is too old), kResourceExhausted (too little memory), kUnsupported.
  Status (*create)(std::shared_ptr<const Checkpoint> checkpoint, const GpuOptions& options,
                   std::unique_ptr<Backend>* backend);
  // The errors of `create` that can be found without loading the model.
  Status (*check)(const Checkpoint& checkpoint, const GpuOptions& options);
  // Creates the model's speech tokenizer alone. Errors: as `create`.
  Status (*create_speech_decoder)(std::shared_ptr<const Checkpoint> checkpoint, const GpuOptions& options,
                                  std::unique_ptr<SpeechDecoder>* decoder);
};

inline constexpr const char* kGpuModuleSymbol = "qtts_gpu_module_v5";

// Identifies the interface and the compiler.
constexpr const char* GpuModuleBuild() { return "qttssrc " QTTS_VERSION " " __VERSION__; }

}  // namespace qtts

#endif  // QTTS_BACKEND_GPU_MODULE_H_
