// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_API_BACKEND_MODULE_H_
#define QTTS_API_BACKEND_MODULE_H_

#include <memory>

#include "backend/gpu_module.h"

namespace qtts {

// The GPU backend out of its module, libqtts-cuda.so, which is looked for in the folder that the environment
// variable QTTS_BACKEND_PATH names, else where it was installed, else in the build tree. Once opened it
// stays. Thread-safe. Errors: kDeviceUnavailable where there is no usable module, and those of
// GpuModule. Every message says what to do.
Result<std::unique_ptr<Backend>> CreateGpuBackend(std::shared_ptr<const Checkpoint> checkpoint,
                                                  const GpuOptions& options);

// The speech tokenizer's decoder alone, out of the same module. Errors: as CreateGpuBackend().
Result<std::unique_ptr<SpeechDecoder>> CreateGpuSpeechDecoder(std::shared_ptr<const Checkpoint> checkpoint,
                                                              const GpuOptions& options);

// The errors of CreateGpuBackend() that can be told without loading the model.
Status CheckGpu(const Checkpoint& checkpoint, const GpuOptions& options);

}  // namespace qtts

#endif  // QTTS_API_BACKEND_MODULE_H_
