// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_API_BACKEND_MODULE_H_
#define QTTS_API_BACKEND_MODULE_H_

#include <memory>

#include "backend/device_module.h"

namespace qtts {

// Creates the backend of `options.device`, neither kAuto nor kCpu, from its module (backend/device_module.h). Search
// order: the folder in the environment variable QTTS_BACKEND_PATH alone, if set; otherwise the install folder, then the
// build tree. The module stays open. Thread-safe. Errors: kDeviceUnavailable if there is no usable module, and those of
// DeviceModule. Every message states the remedy.
Result<std::unique_ptr<Backend>> CreateDeviceBackend(std::shared_ptr<const Checkpoint> checkpoint,
                                                     const EngineOptions& options);

// Returns the speech tokenizer's decoder alone, out of the same module. Errors: as CreateDeviceBackend().
Result<std::unique_ptr<SpeechDecoder>> CreateDeviceSpeechDecoder(std::shared_ptr<const Checkpoint> checkpoint,
                                                                 const EngineOptions& options);

// Returns the number of devices of `device`, neither kAuto nor kCpu; 0 if its module or driver cannot be used.
int CountDevices(Device device);

// Returns the errors of CreateDeviceBackend() that can be told without loading the model.
Status CheckDevice(const Checkpoint& checkpoint, const EngineOptions& options);

// Estimates how many voices the device has memory for. Errors: as CheckDevice(), except for too little memory.
Result<DeviceCapacity> CapacityOfDevice(const Checkpoint& checkpoint, const EngineOptions& options);

}  // namespace qtts

#endif  // QTTS_API_BACKEND_MODULE_H_
