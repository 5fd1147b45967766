// SPDX-License-Identifier: LGPL-2.1-or-later
#include "fake_cuda.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace qtts::fake_cuda {
namespace {

constexpr int kRegistered = -2;

struct Memory {
  size_t bytes = 0;
  int device = -1;  // below 0: host memory; kRegistered: of the caller
  // All bytes of a device that have been written lie between these two; the others are zero.
  size_t written_from = 0;
  size_t written_to = 0;
};

struct Runtime {
  std::vector<Device> devices;
  int driver = CUDART_VERSION;
  std::map<char*, Memory> memory;
  std::vector<size_t> used, most_used;                // [devices], bytes
  std::map<void*, int> streams;                       // handles and their devices
  std::set<void*> events, graphs, execs;              // graphs: captured graphs, execs: instantiated ones
  std::set<void*> recording;                          // streams in capture
  std::set<void*> contexts;                           // of parts of the SMs
  std::set<void*> streams_of_parts, graphs_of_parts;  // graphs: captured or instantiated
  size_t launched_in_parts = 0;
  std::vector<int> parts;
  std::vector<std::string> calls;
  std::set<std::string> loaded_kernels;
  size_t fail_at = 0;
  size_t hang_at = 0;
  cudaError_t fail_with = cudaSuccess;
  bool for_ever = false;
  bool failed = false;
  std::map<int, cudaError_t> lost;  // devices
  std::set<int> hung;               // devices
  std::vector<std::string> misuse;
};

// Never destroyed: kernels are registered during static initialisation and unregistered at exit.
Runtime& TheRuntime() {
  static auto* const runtime = new Runtime();
  return *runtime;
}
std::map<const void*, std::string>& Kernels() {
  static auto* const kernels = new std::map<const void*, std::string>();
  return *kernels;
}
// Freed memory by its size and whether it was a device's. Reusing it is faster than allocating.
std::multimap<std::pair<size_t, bool>, std::pair<char*, Memory>>& FreeMemories() {
  static auto* const memories = new std::multimap<std::pair<size_t, bool>, std::pair<char*, Memory>>();
  return *memories;
}
void KeepFreed(char* data, const Memory& memory) {
  FreeMemories().emplace(std::pair(memory.bytes, memory.device >= 0), std::pair(data, memory));
}
void (*forget_devices)() = nullptr;
thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

// Held by every function of the runtime.
class Guard {
 public:
  Guard() : lock_(TheMutex()) {}

 private:
  // Functions call one another.
  static std::recursive_mutex& TheMutex() {
    static auto* const mutex = new std::recursive_mutex();
    return *mutex;
  }
  std::lock_guard<std::recursive_mutex> lock_;
};

cudaError_t Return(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

void Misuse(const std::string& what) { TheRuntime().misuse.push_back(what); }

cudaError_t LostError(int device) {
  const std::map<int, cudaError_t>& lost = TheRuntime().lost;
  const auto found = lost.find(device);
  return found == lost.end() ? cudaSuccess : found->second;
}

// Records a call of this function. Returns an error if it must fail.
cudaError_t Begin(const std::string& function, int device = current_device) {
  Runtime& r = TheRuntime();
  r.calls.push_back(function);
  if (const cudaError_t error = LostError(device); error != cudaSuccess) return Return(error);
  if (r.calls.size() == r.hang_at) r.hung.insert(device);
  if (r.failed && r.for_ever) return Return(r.fail_with);
  if (r.calls.size() == r.fail_at) {
    r.failed = true;
    return Return(r.fail_with);
  }
  return cudaSuccess;
}

#define QTTS_BEGIN(...) \
  if (const cudaError_t begun = Begin(__VA_ARGS__); begun != cudaSuccess) return begun

// For calls that return only once the device has done its work.
cudaError_t Block(const char* function) {
  if (!TheRuntime().hung.contains(current_device)) return cudaSuccess;
  Misuse(std::string(function) + " would block for ever");
  return Return(cudaErrorUnknown);
}
// Answer to a query.
cudaError_t Pending() { return TheRuntime().hung.contains(current_device) ? cudaErrorNotReady : cudaSuccess; }
#define QTTS_BLOCK(function) \
  if (const cudaError_t blocked = Block(function); blocked != cudaSuccess) return blocked

// Calls that free something cannot be chosen to fail, but they fail after a failure `for_ever`.
cudaError_t Freed() {
  const Runtime& r = TheRuntime();
  return Return(r.failed && r.for_ever ? r.fail_with : LostError(current_device));
}

// A unique handle.
template <typename Handle>
Handle NewHandle() {
  return static_cast<Handle>(std::malloc(1));
}

struct Found {
  char* begin = nullptr;
  Memory* memory = nullptr;
};

// The piece of memory that holds `data`; null: not allocated here. Records misuse if `bytes` go beyond its end.
Found FindMemory(const void* data, size_t bytes, const char* function) {
  Runtime& r = TheRuntime();
  auto* const at = static_cast<char*>(const_cast<void*>(data));
  const auto next = r.memory.upper_bound(at);
  if (next == r.memory.begin()) return {};
  auto& [begin, memory] = *std::prev(next);
  if (at >= begin + memory.bytes) return {};
  if (at + bytes > begin + memory.bytes) Misuse(std::string(function) + " beyond the end of a piece of memory");
  return {begin, &memory};
}

void CheckStream(cudaStream_t stream, const char* function) {
  if (stream == nullptr) return;
  const Runtime& r = TheRuntime();
  const auto found = r.streams.find(stream);
  if (found == r.streams.end()) {
    Misuse(std::string(function) + " with a stream that is not there");
  } else if (found->second != current_device) {
    Misuse(std::string(function) + " with a stream of another device");
  }
}

void CheckNotRecording(cudaStream_t stream, const char* function) {
  if (TheRuntime().recording.contains(stream)) Misuse(std::string(function) + " while the stream is recorded");
}

void CheckHandle(const std::set<void*>& handles, void* handle, const char* function) {
  if (!handles.contains(handle)) Misuse(std::string(function) + " with a handle that is not there");
}

cudaError_t Free(std::set<void*>* handles, void* handle, const char* function) {
  CheckHandle(*handles, handle, function);
  TheRuntime().graphs_of_parts.erase(handle);
  if (handles->erase(handle) > 0) std::free(handle);
  return Freed();
}

cudaError_t Allocate(void** data, size_t bytes, int device) {
  Runtime& r = TheRuntime();
  if (device >= 0) {
    const auto d = static_cast<size_t>(device);
    if (r.used[d] + bytes > r.devices[d].memory - r.devices[d].used_by_others) return Return(cudaErrorMemoryAllocation);
    r.used[d] += bytes;
    r.most_used[d] = std::max(r.most_used[d], r.used[d]);
  }
  Memory memory = {bytes, device};
  if (const auto free = FreeMemories().find({bytes, device >= 0}); free != FreeMemories().end()) {
    *data = free->second.first;
    memory.written_from = free->second.second.written_from;
    memory.written_to = free->second.second.written_to;
    FreeMemories().erase(free);
  } else {
    *data = std::calloc(bytes, 1);
  }
  r.memory[static_cast<char*>(*data)] = memory;
  return cudaSuccess;
}

cudaError_t FreeMemory(void* data, const char* function) {
  Runtime& r = TheRuntime();
  if (data == nullptr) return Freed();
  const auto found = r.memory.find(static_cast<char*>(data));
  if (found == r.memory.end() || found->second.device == kRegistered) {
    Misuse(std::string(function) + " of memory that is not there");
    return Return(cudaErrorInvalidValue);
  }
  if (found->second.device >= 0) r.used[static_cast<size_t>(found->second.device)] -= found->second.bytes;
  KeepFreed(found->first, found->second);
  r.memory.erase(found);
  return Freed();
}

// Bytes of a piece of memory from `at` on are written.
void NoteWritten(const char* begin, Memory* memory, const char* at, size_t bytes) {
  const auto from = static_cast<size_t>(at - begin);
  const bool first = memory->written_to == 0;
  memory->written_from = first ? from : std::min(memory->written_from, from);
  memory->written_to = std::max(memory->written_to, from + bytes);
}

cudaError_t Copy(void* to, const void* from, size_t bytes, const char* function) {
  (void)FindMemory(from, bytes, function);
  const auto [begin, memory] = FindMemory(to, bytes, function);
  if (memory != nullptr) NoteWritten(begin, memory, static_cast<const char*>(to), bytes);
  std::memmove(to, from, bytes);
  return cudaSuccess;
}

cudaError_t Set(void* data, int value, size_t bytes, const char* function) {
  const auto [begin, memory] = FindMemory(data, bytes, function);
  auto* const at = static_cast<char*>(data);
  if (value != 0 || memory == nullptr || memory->device < 0) {
    if (memory != nullptr) NoteWritten(begin, memory, at, bytes);
    std::memset(data, value, bytes);
    return cudaSuccess;
  }
  // Memory of gigabytes is zeroed, of which tests write little.
  char* const from = std::max(at, begin + memory->written_from);
  char* const to = std::min(at + bytes, begin + memory->written_to);
  if (from < to) std::memset(from, 0, static_cast<size_t>(to - from));
  return cudaSuccess;
}

const Device& CurrentDevice() { return TheRuntime().devices[static_cast<size_t>(current_device)]; }

cudaError_t LaunchKernel(const void* kernel, size_t shared, cudaStream_t stream) {
  CheckStream(stream, "a launch");
  const auto found = Kernels().find(kernel);
  if (found == Kernels().end()) {
    Misuse("a launch of an unknown kernel");
    return Return(cudaErrorInvalidDeviceFunction);
  }
  QTTS_BEGIN(found->second);
  TheRuntime().loaded_kernels.insert(found->second);
  if (TheRuntime().streams_of_parts.contains(stream) && !CurrentDevice().parts_take_kernels) {
    return Return(cudaErrorInvalidClusterSize);
  }
  return shared <= CurrentDevice().shared_per_block ? cudaSuccess : Return(cudaErrorInvalidValue);
}

// For functions that need a kernel's code.
cudaError_t CheckCode(const void* kernel) {
  if (!CurrentDevice().has_code) return Return(cudaErrorNoKernelImageForDevice);
  if (const auto found = Kernels().find(kernel); found != Kernels().end()) {
    TheRuntime().loaded_kernels.insert(found->second);
  }
  return cudaSuccess;
}

}  // namespace

void Reset(std::vector<Device> devices) {
  // Left to the end of the process by whoever allocated it.
  for (const auto& [data, memory] : TheRuntime().memory) {
    if (memory.device != kRegistered) KeepFreed(data, memory);
  }
  Runtime fresh;
  fresh.used.resize(devices.size());
  fresh.most_used.resize(devices.size());
  fresh.devices = std::move(devices);
  TheRuntime() = std::move(fresh);
  current_device = 0;
  last_error = cudaSuccess;
  if (forget_devices != nullptr) forget_devices();
}

void OnReset(void (*forget)()) { forget_devices = forget; }

void SetDriver(int version) { TheRuntime().driver = version; }

void FailCall(size_t n, cudaError_t error, bool for_ever) {
  Runtime& r = TheRuntime();
  r.fail_at = r.calls.size() + n;
  r.fail_with = error;
  r.for_ever = for_ever;
  r.failed = false;
}

void LoseDevice(int device, cudaError_t error) {
  const Guard guard;
  TheRuntime().lost[device] = error;
}

void HangDevice(int device) {
  const Guard guard;
  TheRuntime().hung.insert(device);
}

void HangAtCall(size_t n) { TheRuntime().hang_at = TheRuntime().calls.size() + n; }

bool failed() { return TheRuntime().failed; }

void LeaveMemory(int device, size_t bytes) {
  Device& d = TheRuntime().devices[static_cast<size_t>(device)];
  const size_t needed = TheRuntime().used[static_cast<size_t>(device)] + bytes;
  d.memory = std::max(d.memory, needed);
  d.used_by_others = d.memory - needed;
}

size_t used_memory(int device) { return TheRuntime().used[static_cast<size_t>(device)]; }
size_t most_memory(int device) { return TheRuntime().most_used[static_cast<size_t>(device)]; }

const std::vector<std::string>& calls() { return TheRuntime().calls; }
const std::set<std::string>& loaded_kernels() { return TheRuntime().loaded_kernels; }
const std::vector<int>& parts() { return TheRuntime().parts; }
size_t launched_in_parts() { return TheRuntime().launched_in_parts; }
const std::vector<std::string>& misuse() { return TheRuntime().misuse; }

size_t alive() {
  const Runtime& r = TheRuntime();
  return r.memory.size() + r.streams.size() + r.events.size() + r.graphs.size() + r.execs.size() + r.contexts.size();
}

}  // namespace qtts::fake_cuda

// Functions of the runtime, as NVIDIA documents them, as far as the backend depends on them.

using namespace qtts::fake_cuda;  // NOLINT(google-build-using-namespace)

extern "C" {

// --- kernels: what nvcc's host code calls

void** __cudaRegisterFatBinary(void* binary) { return static_cast<void**>(binary); }
void __cudaRegisterFatBinaryEnd(void** /*binary*/) {}
void __cudaUnregisterFatBinary(void** /*binary*/) {}
void __cudaRegisterFunction(void** /*binary*/, const char* host, char* /*device*/, const char* name, int /*threads*/,
                            uint3* /*tid*/, uint3* /*bid*/, dim3* /*block*/, dim3* /*grid*/, int* /*warp*/) {
  const Guard guard;
  Kernels()[host] = name;
}

struct CallConfiguration {
  dim3 grid, block;
  size_t shared = 0;
  cudaStream_t stream = nullptr;
};
static thread_local CallConfiguration pushed;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  pushed = {grid, block, shared, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  const Guard guard;
  *grid = pushed.grid;
  *block = pushed.block;
  *shared = pushed.shared;
  *static_cast<cudaStream_t*>(stream) = pushed.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  const Guard guard;
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(host));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 /*grid*/, dim3 /*block*/, void** /*arguments*/, size_t shared,
                               cudaStream_t stream) {
  const Guard guard;
  return LaunchKernel(kernel, shared, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** /*arguments*/) {
  const Guard guard;
  return LaunchKernel(kernel, config->dynamicSmemBytes, config->stream);
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  const Guard guard;
  QTTS_BEGIN("cudaFuncSetAttribute");
  const bool too_much = attribute == cudaFuncAttributeMaxDynamicSharedMemorySize &&
                        static_cast<size_t>(value) > CurrentDevice().shared_per_block;
  return too_much ? Return(cudaErrorInvalidValue) : CheckCode(kernel);
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  const Guard guard;
  QTTS_BEGIN("cudaFuncGetAttributes");
  *attributes = {};
  const Device& device = CurrentDevice();
  attributes->binaryVersion = device.major * 10 + device.minor;
  attributes->ptxVersion = device.code != 0 ? device.code : attributes->binaryVersion;
  return CheckCode(kernel);
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int /*threads*/,
                                                          size_t /*shared*/) {
  const Guard guard;
  QTTS_BEGIN("cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  *blocks = 1;
  return CheckCode(kernel);
}

// --- devices

cudaError_t cudaDriverGetVersion(int* version) {
  const Guard guard;
  *version = TheRuntime().driver;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  const Guard guard;
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  const Guard guard;
  QTTS_BEGIN("cudaGetDeviceCount");
  if (TheRuntime().driver < CUDART_VERSION) return Return(cudaErrorInsufficientDriver);
  *count = static_cast<int>(TheRuntime().devices.size());
  return *count == 0 ? Return(cudaErrorNoDevice) : cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  const Guard guard;
  QTTS_BEGIN("cudaGetDevice");
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  const Guard guard;
  QTTS_BEGIN("cudaSetDevice", device);
  if (device < 0 || static_cast<size_t>(device) >= TheRuntime().devices.size()) return Return(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const Guard guard;
  QTTS_BEGIN("cudaGetDeviceProperties", device);
  const Device& d = TheRuntime().devices[static_cast<size_t>(device)];
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "%s", d.name.c_str());
  properties->major = d.major;
  properties->minor = d.minor;
  properties->multiProcessorCount = d.processors;
  properties->totalGlobalMem = d.memory;
  properties->sharedMemPerBlockOptin = d.shared_per_block;
  properties->l2CacheSize = 50 << 20;
  properties->clusterLaunch = d.major >= 9 ? 1 : 0;
  properties->cooperativeLaunch = 1;
  properties->integrated = d.integrated ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  const Guard guard;
  QTTS_BEGIN("cudaDeviceGetAttribute", device);
  const Device& d = TheRuntime().devices[static_cast<size_t>(device)];
  switch (attribute) {
    case cudaDevAttrMemoryClockRate:
      *value = 1000 * d.memory_megahertz;
      return cudaSuccess;
    case cudaDevAttrIntegrated:
      *value = d.integrated ? 1 : 0;
      return cudaSuccess;
    case cudaDevAttrGlobalMemoryBusWidth:
      *value = d.bus_bits;
      return cudaSuccess;
    default:
      Misuse("a question for attribute " + std::to_string(attribute) + ", which the fake does not know");
      return Return(cudaErrorInvalidValue);
  }
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* most) {
  const Guard guard;
  QTTS_BEGIN("cudaDeviceGetStreamPriorityRange");
  *least = 0;
  *most = -5;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const Guard guard;
  QTTS_BEGIN("cudaMemGetInfo");
  *total = CurrentDevice().memory;
  *free = *total - CurrentDevice().used_by_others - TheRuntime().used[static_cast<size_t>(current_device)];
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  const Guard guard;
  QTTS_BEGIN("cudaDeviceSynchronize");
  QTTS_BLOCK("cudaDeviceSynchronize");
  return cudaSuccess;
}

// --- errors

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    default:
      return "an error of the fake";
  }
}
cudaError_t cudaGetLastError() {
  const Guard guard;
  const Runtime& r = TheRuntime();
  const cudaError_t error = last_error;
  if ((!r.failed || !r.for_ever) && LostError(current_device) == cudaSuccess) last_error = cudaSuccess;
  return error;
}

// --- memory

cudaError_t cudaMalloc(void** data, size_t bytes) {
  const Guard guard;
  QTTS_BEGIN("cudaMalloc");
  return Allocate(data, bytes, current_device);
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned /*flags*/) {
  const Guard guard;
  QTTS_BEGIN("cudaHostAlloc");
  return Allocate(data, bytes, -1);
}
cudaError_t cudaHostRegister(void* data, size_t bytes, unsigned /*flags*/) {
  const Guard guard;
  QTTS_BEGIN("cudaHostRegister");
  Runtime& r = TheRuntime();
  if (r.memory.contains(static_cast<char*>(data))) {
    Misuse("cudaHostRegister of memory that is registered");
    return Return(cudaErrorHostMemoryAlreadyRegistered);
  }
  r.memory[static_cast<char*>(data)] = {bytes, kRegistered, false};
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* data) {
  const Guard guard;
  QTTS_BLOCK("cudaHostUnregister");
  Runtime& r = TheRuntime();
  const auto found = r.memory.find(static_cast<char*>(data));
  if (found == r.memory.end() || found->second.device != kRegistered) {
    Misuse("cudaHostUnregister of memory that is not registered");
    return Return(cudaErrorHostMemoryNotRegistered);
  }
  r.memory.erase(found);
  return Freed();
}
cudaError_t cudaFree(void* data) {
  const Guard guard;
  QTTS_BLOCK("cudaFree");
  return FreeMemory(data, "cudaFree");
}
cudaError_t cudaFreeHost(void* data) {
  const Guard guard;
  QTTS_BLOCK("cudaFreeHost");
  return FreeMemory(data, "cudaFreeHost");
}
cudaError_t cudaMemset(void* data, int value, size_t bytes) {
  const Guard guard;
  QTTS_BEGIN("cudaMemset");
  QTTS_BLOCK("cudaMemset");
  return Set(data, value, bytes, "cudaMemset");
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  const Guard guard;
  QTTS_BEGIN("cudaMemsetAsync");
  CheckStream(stream, "cudaMemsetAsync");
  return Set(data, value, bytes, "cudaMemsetAsync");
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind /*kind*/) {
  const Guard guard;
  QTTS_BEGIN("cudaMemcpy");
  QTTS_BLOCK("cudaMemcpy");
  return Copy(to, from, bytes, "cudaMemcpy");
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const Guard guard;
  QTTS_BEGIN("cudaMemcpyAsync");
  CheckStream(stream, "cudaMemcpyAsync");
  // To pageable memory it returns at its end.
  if (kind == cudaMemcpyDeviceToHost && FindMemory(to, 0, "cudaMemcpyAsync").memory == nullptr)
    QTTS_BLOCK("cudaMemcpyAsync");
  return Copy(to, from, bytes, "cudaMemcpyAsync");
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind /*kind*/, cudaStream_t stream) {
  const Guard guard;
  QTTS_BEGIN("cudaMemcpy2DAsync");
  CheckStream(stream, "cudaMemcpy2DAsync");
  for (size_t row = 0; row < height; ++row) {
    (void)Copy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width,
               "cudaMemcpy2DAsync");
  }
  return cudaSuccess;
}

// --- streams and events

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned /*flags*/, int /*priority*/) {
  const Guard guard;
  QTTS_BEGIN("cudaStreamCreateWithPriority");
  *stream = NewHandle<cudaStream_t>();
  TheRuntime().streams[*stream] = current_device;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Guard guard;
  CheckNotRecording(stream, "cudaStreamDestroy");
  if (TheRuntime().streams.erase(stream) == 0) {
    Misuse("cudaStreamDestroy of a stream that is not there");
  } else {
    TheRuntime().streams_of_parts.erase(stream);
    std::free(stream);
  }
  return Freed();
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Guard guard;
  QTTS_BEGIN("cudaStreamSynchronize");
  CheckStream(stream, "cudaStreamSynchronize");
  CheckNotRecording(stream, "cudaStreamSynchronize");
  QTTS_BLOCK("cudaStreamSynchronize");
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const Guard guard;
  QTTS_BEGIN("cudaStreamQuery");
  CheckStream(stream, "cudaStreamQuery");
  CheckNotRecording(stream, "cudaStreamQuery");
  return Pending();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  const Guard guard;
  QTTS_BEGIN("cudaStreamWaitEvent");
  CheckStream(stream, "cudaStreamWaitEvent");
  CheckHandle(TheRuntime().events, event, "cudaStreamWaitEvent");
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  const Guard guard;
  QTTS_BEGIN("cudaEventCreateWithFlags");
  *event = NewHandle<cudaEvent_t>();
  TheRuntime().events.insert(*event);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Guard guard;
  return Free(&TheRuntime().events, event, "cudaEventDestroy");
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Guard guard;
  QTTS_BEGIN("cudaEventRecord");
  CheckStream(stream, "cudaEventRecord");
  CheckHandle(TheRuntime().events, event, "cudaEventRecord");
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Guard guard;
  QTTS_BEGIN("cudaEventQuery");
  CheckHandle(TheRuntime().events, event, "cudaEventQuery");
  return Pending();
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Guard guard;
  QTTS_BEGIN("cudaEventSynchronize");
  CheckHandle(TheRuntime().events, event, "cudaEventSynchronize");
  QTTS_BLOCK("cudaEventSynchronize");
  return cudaSuccess;
}

// --- graphs

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode /*mode*/) {
  const Guard guard;
  QTTS_BEGIN("cudaStreamBeginCapture");
  CheckStream(stream, "cudaStreamBeginCapture");
  CheckNotRecording(stream, "cudaStreamBeginCapture");
  TheRuntime().recording.insert(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Guard guard;
  if (TheRuntime().recording.erase(stream) == 0) Misuse("cudaStreamEndCapture of a stream that is not recorded");
  *graph = nullptr;
  QTTS_BEGIN("cudaStreamEndCapture");
  *graph = NewHandle<cudaGraph_t>();
  TheRuntime().graphs.insert(*graph);
  if (TheRuntime().streams_of_parts.contains(stream)) TheRuntime().graphs_of_parts.insert(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long /*flags*/) {  // NOLINT
  const Guard guard;
  QTTS_BEGIN("cudaGraphInstantiate");
  CheckHandle(TheRuntime().graphs, graph, "cudaGraphInstantiate");
  *exec = NewHandle<cudaGraphExec_t>();
  TheRuntime().execs.insert(*exec);
  if (TheRuntime().graphs_of_parts.contains(graph)) TheRuntime().graphs_of_parts.insert(*exec);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const Guard guard;
  return Free(&TheRuntime().graphs, graph, "cudaGraphDestroy");
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  const Guard guard;
  return Free(&TheRuntime().execs, exec, "cudaGraphExecDestroy");
}
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
  const Guard guard;
  QTTS_BEGIN("cudaGraphUpload");
  CheckStream(stream, "cudaGraphUpload");
  CheckHandle(TheRuntime().execs, exec, "cudaGraphUpload");
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  const Guard guard;
  QTTS_BEGIN("cudaGraphLaunch");
  CheckStream(stream, "cudaGraphLaunch");
  CheckNotRecording(stream, "cudaGraphLaunch");
  CheckHandle(TheRuntime().execs, exec, "cudaGraphLaunch");
  if (TheRuntime().graphs_of_parts.contains(exec)) ++TheRuntime().launched_in_parts;
  return cudaSuccess;
}

// --- parts of the SMs: functions of the driver, found by name

static CUresult ResultOf(cudaError_t error) { return static_cast<CUresult>(error); }

static CUresult GetResource(CUdevice device, CUdevResource* resource, CUdevResourceType type) {
  const Guard guard;
  if (const cudaError_t error = Begin("cuDeviceGetDevResource", device); error != cudaSuccess) return ResultOf(error);
  *resource = {};
  resource->type = type;
  resource->sm.smCount = static_cast<unsigned>(TheRuntime().devices[static_cast<size_t>(device)].processors);
  return CUDA_SUCCESS;
}
static CUresult SplitResource(CUdevResource* result, unsigned* groups, const CUdevResource* input,
                              CUdevResource* /*remaining*/, unsigned /*flags*/, unsigned at_least) {
  const Guard guard;
  if (const cudaError_t error = Begin("cuDevSmResourceSplitByCount"); error != cudaSuccess) return ResultOf(error);
  const auto step = static_cast<unsigned>(CurrentDevice().part_step);
  const unsigned count = std::max(1U, (at_least + step - 1) / step) * step;
  if (count > input->sm.smCount) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  *result = *input;
  result->sm.smCount = count;
  *groups = 1;
  return CUDA_SUCCESS;
}
static CUresult DescribeResource(CUdevResourceDesc* description, CUdevResource* resources, unsigned /*count*/) {
  const Guard guard;
  if (const cudaError_t error = Begin("cuDevResourceGenerateDesc"); error != cudaSuccess) return ResultOf(error);
  *description = reinterpret_cast<CUdevResourceDesc>(static_cast<uintptr_t>(resources->sm.smCount));
  return CUDA_SUCCESS;
}
static CUresult CreateContext(CUgreenCtx* context, CUdevResourceDesc description, CUdevice device, unsigned /*flags*/) {
  const Guard guard;
  if (const cudaError_t error = Begin("cuGreenCtxCreate", device); error != cudaSuccess) return ResultOf(error);
  *context = NewHandle<CUgreenCtx>();
  TheRuntime().contexts.insert(*context);
  TheRuntime().parts.push_back(static_cast<int>(reinterpret_cast<uintptr_t>(description)));
  return CUDA_SUCCESS;
}
static CUresult DestroyContext(CUgreenCtx context) {
  const Guard guard;
  return ResultOf(Free(&TheRuntime().contexts, context, "cuGreenCtxDestroy"));
}
static CUresult CreateStreamOfContext(CUstream* stream, CUgreenCtx context, unsigned /*flags*/, int /*priority*/) {
  const Guard guard;
  if (const cudaError_t error = Begin("cuGreenCtxStreamCreate"); error != cudaSuccess) return ResultOf(error);
  CheckHandle(TheRuntime().contexts, context, "cuGreenCtxStreamCreate");
  *stream = NewHandle<CUstream>();
  TheRuntime().streams[*stream] = current_device;
  TheRuntime().streams_of_parts.insert(*stream);
  return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned /*version*/,
                                             unsigned long long /*flags*/,  // NOLINT
                                             cudaDriverEntryPointQueryResult* result) {
  const Guard guard;
  QTTS_BEGIN("cudaGetDriverEntryPointByVersion");
  static const std::map<std::string, void*> functions = {
      {"cuDeviceGetDevResource", reinterpret_cast<void*>(GetResource)},
      {"cuDevSmResourceSplitByCount", reinterpret_cast<void*>(SplitResource)},
      {"cuDevResourceGenerateDesc", reinterpret_cast<void*>(DescribeResource)},
      {"cuGreenCtxCreate", reinterpret_cast<void*>(CreateContext)},
      {"cuGreenCtxDestroy", reinterpret_cast<void*>(DestroyContext)},
      {"cuGreenCtxStreamCreate", reinterpret_cast<void*>(CreateStreamOfContext)}};
  const auto found = functions.find(name);
  const bool known = found != functions.end() && CurrentDevice().has_parts;
  *function = known ? found->second : nullptr;
  *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

}  // extern "C"
