// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_DEVICE_CHOICE_H_
#define QTTS_CUDA_DEVICE_CHOICE_H_

#include "checkpoint/checkpoint.h"
#include "codec/codec.h"
#include "qtts/status.h"

namespace qtts {
struct DeviceCapacity;  // backend/device_module.h
namespace cuda {
struct CudaOptions;  // language_model.h
}
}  // namespace qtts

// Which GPU an engine or a decoder uses, and whether it has room: what they need of its memory is counted before
// anything is loaded (runtime/memory_count.h).
namespace qtts::cuda {

// Returns the number of devices. Errors: kDeviceUnavailable (no driver, no device).
Result<int> CountDevices();

struct DeviceChoice {
  int device = 0;
  int voices = 0;  // slots of the engine, 1 to CudaOptions::max_slots
};

// Returns the device that CudaBackend::Create() uses: options.device, or for -1 the first usable one with memory for
// the model. Up to kDefaultVoices slots are as many as the device has memory for, with ten seconds of speech in each.
// More must all fit. Errors: those of Create() that need no load. Makes the device current in the calling thread.
Result<DeviceChoice> ChooseDevice(const Checkpoint& checkpoint, const CudaOptions& options);
// Returns the same for the speech tokenizer's decoder alone.
Result<int> ChooseDecoderDevice(const Checkpoint& checkpoint, CodecPrecision precision, int device);

// Returns how many voices options.device has memory for, or for -1 the first usable device. Errors: as
// ChooseDevice(), except for too little memory.
Result<DeviceCapacity> CapacityOf(const Checkpoint& checkpoint, const CudaOptions& options);

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_DEVICE_CHOICE_H_
