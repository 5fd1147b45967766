// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_BACKEND_DEVICE_MODULE_H_
#define QTTS_BACKEND_DEVICE_MODULE_H_

#include <cstddef>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/speech_decoder.h"
#include "build_config.h"
#include "checkpoint/checkpoint.h"
#include "qtts/engine_options.h"
#include "qtts/log.h"
#include "qtts/status.h"

// The interface between the engine and a device's module, a shared library that is opened only on demand, by name:
// libqtts-NAME.so, where NAME is DeviceName(). It has one symbol, kDeviceModuleSymbol, of type DeviceModule. C++ types
// cross the interface, so both sides must come from one build, which `build` identifies.
namespace qtts {

// Memory of a device and what an engine would take of it, estimated from the model's sizes.
struct DeviceCapacity {
  std::string device;              // its name
  std::string compute_capability;  // as in "9.0"
  std::string path;                // how frames of one utterance are computed
  double bandwidth = 0;            // of its memory, bytes a second; 0: unknown
  size_t frame_bytes = 0;          // read from it for a frame of one utterance
  size_t free_bytes = 0;           // now
  size_t device_bytes = 0;
  size_t model_bytes = 0;  // of an engine without its utterances
  size_t voice_bytes = 0;  // of an utterance of ten seconds
  int voices = 0;          // utterances that fit beside the model, up to kMostVoices
};

// The functions take the engine's options as they are.
struct DeviceModule {
  // Must equal DeviceModuleBuild() of the engine; otherwise nothing else may be called.
  const char* build;
  // Sets the module's log sink. The module needs its own (SetLogSink()), since it shares no variables with the engine.
  void (*set_log_sink)(const LogSink* sink);
  // Creates the backend of the model on the device. Errors: kInvalidArgument (no such device), kDeviceUnavailable (no
  // driver, no device or one that is too old), kResourceExhausted (too little memory), kUnsupported.
  Status (*create)(std::shared_ptr<const Checkpoint> checkpoint, const EngineOptions& options,
                   std::unique_ptr<Backend>* backend);
  // The errors of `create` that can be found without loading the model.
  Status (*check)(const Checkpoint& checkpoint, const EngineOptions& options);
  // The number of devices. Errors: kDeviceUnavailable (no driver, no device).
  Status (*count)(int* devices);
  // Estimates how many voices `create` has memory for. Errors: as `check`, except for too little memory.
  Status (*capacity)(const Checkpoint& checkpoint, const EngineOptions& options, DeviceCapacity* capacity);
  // Creates the model's speech tokenizer alone. Errors: as `create`.
  Status (*create_speech_decoder)(std::shared_ptr<const Checkpoint> checkpoint, const EngineOptions& options,
                                  std::unique_ptr<SpeechDecoder>* decoder);
};

inline constexpr const char* kDeviceModuleSymbol = "qtts_device_module_v9";

// Begin and end of a device's errors. With device=auto other words stand there (api/device_choice.h).
inline constexpr const char* kDeviceErrorBegin = "device=cuda: ";
inline constexpr const char* kDeviceErrorEnd = "; choose device=cpu or device=auto";

// Identifies the interface and the compiler.
constexpr const char* DeviceModuleBuild() { return "qttssrc " QTTS_VERSION " " __VERSION__; }

}  // namespace qtts

#endif  // QTTS_BACKEND_DEVICE_MODULE_H_
