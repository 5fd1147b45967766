// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_DEVICE_TABLE_H_
#define QTTS_CUDA_RUNTIME_DEVICE_TABLE_H_

#include "qtts/status.h"
#include "runtime/device_numbers.h"

namespace qtts::cuda {

// Returns NumbersOf() the current device. Logs once per process if the card has no measured table. Thread-safe.
Result<DeviceNumbers> NumbersOfDevice();

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_DEVICE_TABLE_H_
