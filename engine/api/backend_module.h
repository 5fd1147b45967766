// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_API_BACKEND_MODULE_H_
#define QTTS_API_BACKEND_MODULE_H_

#include <memory>

#include "backend/gpu_module.h"

namespace qtts {

// Creates the GPU backend from its module, libqtts-cuda.so. Search order: the folder in the environment variable
// QTTS_BACKEND_PATH alone, if set; otherwise the install folder, then the build tree. The module stays open.
// Thread-safe. Errors: kDeviceUnavailable if there is no usable module, and those of GpuModule. Every message states
// the remedy.
Result<std::unique_ptr<Backend>> CreateGpuBackend(std::shared_ptr<const Checkpoint> checkpoint,
                                                  const GpuOptions& options);

// Creates the speech tokenizer's decoder alone, from the same module. Errors: as CreateGpuBackend().
Result<std::unique_ptr<SpeechDecoder>> CreateGpuSpeechDecoder(std::shared_ptr<const Checkpoint> checkpoint,
                                                              const GpuOptions& options);

// The errors of CreateGpuBackend() that can be found without loading the model.
Status CheckGpu(const Checkpoint& checkpoint, const GpuOptions& options);

}  // namespace qtts

#endif  // QTTS_API_BACKEND_MODULE_H_
