// SPDX-License-Identifier: LGPL-2.1-or-later
#include "api/backend_module.h"

#include <glib.h>
#include <glib/gstdio.h>
#include <gmodule.h>

#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ensure_memory.h"
#include "base/log.h"
#include "build_config.h"
#include "qtts/mutex.h"

namespace qtts {
namespace {

constexpr const char* kFile = "libqtts-cuda.so";

std::string InFolder(const char* folder) { return std::string(folder) + "/" + kFile; }

// Paths to try, in order.
std::vector<std::string> Places() {
  if (const char* folder = g_getenv("QTTS_BACKEND_PATH"); folder != nullptr && *folder != '\0') {
    return {InFolder(folder)};
  }
  std::vector<std::string> places;
  for (const char* folder : {QTTS_BACKEND_DIRS}) places.push_back(InFolder(folder));
  return places;
}

// The module logs into the engine's log.
constexpr LogSink kModuleSink = {LogEnabled, [](LogLevel level, const char* line) { Log(level, line); }};

Status Unavailable(const std::string& what) {
  return Status::DeviceUnavailable("device=cuda: " + what + "; choose device=cpu or device=auto");
}

// True if there is memory to open the module. If memory runs out in the static constructors of its CUDA runtime, they
// crash.
bool HasMemoryToOpen(const std::string& path) {
  constexpr size_t kConstructorBytes = size_t{16} << 20;
  GStatBuf file;
  if (g_stat(path.c_str(), &file) != 0) return true;  // g_module_open() reports the error
  try {
    EnsureMemory(static_cast<size_t>(file.st_size) + kConstructorBytes);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

Result<const GpuModule*> OpenModule() {
  std::string places;
  for (const std::string& path : Places()) {
    places += (places.empty() ? "" : ", ") + path;
    if (!g_file_test(path.c_str(), G_FILE_TEST_EXISTS)) continue;
    if (!HasMemoryToOpen(path)) return Unavailable("not enough memory to open the GPU backend");
    GModule* const module =
        g_module_open(path.c_str(), static_cast<GModuleFlags>(G_MODULE_BIND_LAZY | G_MODULE_BIND_LOCAL));
    if (module == nullptr) {
      return Unavailable("the GPU backend cannot be opened: " + std::string(g_module_error()));
    }
    gpointer symbol = nullptr;
    if (!g_module_symbol(module, kGpuModuleSymbol, &symbol) || symbol == nullptr) {
      g_module_close(module);
      return Unavailable(path + " is not a GPU backend of qttssrc: it has no " + kGpuModuleSymbol);
    }
    const auto* const gpu = static_cast<const GpuModule*>(symbol);
    if (gpu->build == nullptr || std::string_view(gpu->build) != GpuModuleBuild()) {
      const std::string build = gpu->build == nullptr ? "?" : gpu->build;
      g_module_close(module);
      return Unavailable(path + " belongs to another build (" + build + ", this is " + GpuModuleBuild() + ")");
    }
    // Never unloaded: CUDA's threads and state outlive their users.
    g_module_make_resident(module);
    gpu->set_log_sink(&kModuleSink);
    return gpu;
  }
  return Unavailable("the GPU backend is not installed (looked for " + places + ")");
}

Result<const GpuModule*> GetModule() {
  static Mutex mutex;
  static const GpuModule* opened QTTS_GUARDED_BY(mutex) = nullptr;
  const MutexLock lock(mutex);
  if (opened == nullptr) {
    QTTS_ASSIGN_OR_RETURN(opened, OpenModule());
  }
  return opened;
}

}  // namespace

Result<std::unique_ptr<Backend>> CreateGpuBackend(std::shared_ptr<const Checkpoint> checkpoint,
                                                  const GpuOptions& options) {
  QTTS_ASSIGN_OR_RETURN(const GpuModule* const module, GetModule());
  std::unique_ptr<Backend> backend;
  QTTS_RETURN_IF_ERROR(module->create(std::move(checkpoint), options, &backend));
  return backend;
}

Result<std::unique_ptr<SpeechDecoder>> CreateGpuSpeechDecoder(std::shared_ptr<const Checkpoint> checkpoint,
                                                              const GpuOptions& options) {
  QTTS_ASSIGN_OR_RETURN(const GpuModule* const module, GetModule());
  std::unique_ptr<SpeechDecoder> decoder;
  QTTS_RETURN_IF_ERROR(module->create_speech_decoder(std::move(checkpoint), options, &decoder));
  return decoder;
}

Status CheckGpu(const Checkpoint& checkpoint, const GpuOptions& options) {
  QTTS_ASSIGN_OR_RETURN(const GpuModule* const module, GetModule());
  return module->check(checkpoint, options);
}

}  // namespace qtts
