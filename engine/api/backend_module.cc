// SPDX-License-Identifier: LGPL-2.1-or-later
#include "api/backend_module.h"

#include <glib.h>
#include <glib/gstdio.h>
#include <gmodule.h>

#include <map>
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

// Returns the paths to try for a device's module, in order.
std::vector<std::string> ModulePaths(Device device) {
  const std::string file = "/libqtts-" + std::string(DeviceName(device)) + ".so";
  if (const char* folder = g_getenv("QTTS_BACKEND_PATH"); folder != nullptr && *folder != '\0') return {folder + file};
  std::vector<std::string> places;
  for (const char* folder : {QTTS_BACKEND_DIRS}) places.push_back(folder + file);
  return places;
}

// The module logs into the engine's log.
constexpr LogSink kModuleSink = {LogEnabled, [](LogLevel level, const char* line) { Log(level, line); }};

Status Unavailable(Device device, const std::string& what) {
  return Status::DeviceUnavailable("device=" + std::string(DeviceName(device)) + ": " + what + kDeviceErrorEnd);
}

// Returns true if there is memory to open the module. If memory runs out in the static constructors of a device's
// runtime, they crash.
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

Result<const DeviceModule*> OpenModule(Device device) {
  std::string places;
  for (const std::string& path : ModulePaths(device)) {
    places += (places.empty() ? "" : ", ") + path;
    if (!g_file_test(path.c_str(), G_FILE_TEST_EXISTS)) continue;
    if (!HasMemoryToOpen(path)) return Unavailable(device, "not enough memory to open the GPU backend");
    GModule* const module =
        g_module_open(path.c_str(), static_cast<GModuleFlags>(G_MODULE_BIND_LAZY | G_MODULE_BIND_LOCAL));
    if (module == nullptr) {
      return Unavailable(device, "the GPU backend cannot be opened: " + std::string(g_module_error()));
    }
    gpointer symbol = nullptr;
    if (!g_module_symbol(module, kDeviceModuleSymbol, &symbol) || symbol == nullptr) {
      g_module_close(module);
      return Unavailable(device, path + " is not a GPU backend of qttssrc: it has no " + kDeviceModuleSymbol);
    }
    const auto* const opened = static_cast<const DeviceModule*>(symbol);
    if (opened->build == nullptr || std::string_view(opened->build) != DeviceModuleBuild()) {
      const std::string build = opened->build == nullptr ? "?" : opened->build;
      g_module_close(module);
      return Unavailable(device,
                         path + " belongs to another build (" + build + ", this is " + DeviceModuleBuild() + ")");
    }
    // Never unloaded: the threads and state of a device's runtime outlive their users.
    g_module_make_resident(module);
    opened->set_log_sink(&kModuleSink);
    return opened;
  }
  return Unavailable(
      device, "the GPU backend is not installed (looked for " + places + "): build it, with nvcc and -Dcuda=enabled");
}

Result<const DeviceModule*> ModuleOf(Device device) {
  static Mutex mutex;
  static std::map<Device, const DeviceModule*> opened QTTS_GUARDED_BY(mutex);
  const MutexLock lock(mutex);
  if (const auto found = opened.find(device); found != opened.end()) return found->second;
  QTTS_ASSIGN_OR_RETURN(const DeviceModule* const module, OpenModule(device));
  opened.emplace(device, module);
  return module;
}

}  // namespace

Result<std::unique_ptr<Backend>> CreateDeviceBackend(std::shared_ptr<const Checkpoint> checkpoint,
                                                     const EngineOptions& options) {
  QTTS_ASSIGN_OR_RETURN(const DeviceModule* const module, ModuleOf(options.device));
  std::unique_ptr<Backend> backend;
  QTTS_RETURN_IF_ERROR(module->create(std::move(checkpoint), options, &backend));
  return backend;
}

Result<std::unique_ptr<SpeechDecoder>> CreateDeviceSpeechDecoder(std::shared_ptr<const Checkpoint> checkpoint,
                                                                 const EngineOptions& options) {
  QTTS_ASSIGN_OR_RETURN(const DeviceModule* const module, ModuleOf(options.device));
  std::unique_ptr<SpeechDecoder> decoder;
  QTTS_RETURN_IF_ERROR(module->create_speech_decoder(std::move(checkpoint), options, &decoder));
  return decoder;
}

int CountDevices(Device device) {
  const Result<const DeviceModule*> module = ModuleOf(device);
  int devices = 0;
  return module.ok() && (*module)->count(&devices).ok() ? devices : 0;
}

Status CheckDevice(const Checkpoint& checkpoint, const EngineOptions& options) {
  QTTS_ASSIGN_OR_RETURN(const DeviceModule* const module, ModuleOf(options.device));
  return module->check(checkpoint, options);
}

Result<DeviceCapacity> CapacityOfDevice(const Checkpoint& checkpoint, const EngineOptions& options) {
  QTTS_ASSIGN_OR_RETURN(const DeviceModule* const module, ModuleOf(options.device));
  DeviceCapacity capacity;
  QTTS_RETURN_IF_ERROR(module->capacity(checkpoint, options, &capacity));
  return capacity;
}

}  // namespace qtts
