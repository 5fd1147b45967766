// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CPU_DEVICE_NAME_H_
#define QTTS_CPU_DEVICE_NAME_H_

#include <string>

#include "cpu/arithmetic.h"

namespace qtts::cpu {

// Returns the name for messages: instruction set, arithmetic unless it is F32, and threads. Example: "cpu (AVX-512
// VNNI, int8, 2 threads)".
std::string DeviceNameOf(Arithmetic arithmetic, int threads);

}  // namespace qtts::cpu

#endif  // QTTS_CPU_DEVICE_NAME_H_
