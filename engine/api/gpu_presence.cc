// SPDX-License-Identifier: LGPL-2.1-or-later
#include "api/gpu_presence.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace qtts {
namespace {

namespace fs = std::filesystem;

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Returns the first word of a small file.
std::string WordOf(const fs::path& path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
}

// Returns true for a display or 3D controller by NVIDIA.
bool IsNvidiaGpu(const fs::path& device) {
  return WordOf(device / "vendor") == "0x10de" && WordOf(device / "class").rfind("0x03", 0) == 0;
}

}  // namespace

bool HasNvidiaGpu(const std::string& root) {
  const fs::path top = root.empty() ? "/" : root;
  std::error_code error;
  for (const char* const folder : {"proc/driver/nvidia/gpus", "sys/bus/pci/devices"}) {
    const bool of_driver = folder[0] == 'p';
    for (fs::directory_iterator entry(top / folder, error), end; !error && entry != end; entry.increment(error)) {
      if (of_driver || IsNvidiaGpu(entry->path())) return true;
    }
  }
  // Jetsons, whose GPU is on no bus; the Windows Subsystem for Linux, which has the driver's library in a place of its
  // own.
  return Exists(top / "dev/nvhost-gpu") || Exists(top / "dev/nvgpu") ||
         (Exists(top / "dev/dxg") && Exists(top / "usr/lib/wsl/lib/libcuda.so.1"));
}

}  // namespace qtts
