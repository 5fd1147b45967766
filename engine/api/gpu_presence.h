// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_API_GPU_PRESENCE_H_
#define QTTS_API_GPU_PRESENCE_H_

#include <string>

namespace qtts {

// Returns true if the machine has an NVIDIA GPU, by what the kernel knows: also without a driver, and without the GPU
// backend. `root`: folder of /dev, /proc, /sys and /usr. Thread-safe.
bool HasNvidiaGpu(const std::string& root = "");

}  // namespace qtts

#endif  // QTTS_API_GPU_PRESENCE_H_
