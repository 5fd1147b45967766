// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_FAKE_CUDA_FAKE_CUDA_H_
#define QTTS_TESTS_FAKE_CUDA_FAKE_CUDA_H_

#include <driver_types.h>

#include <cstddef>
#include <set>
#include <string>
#include <vector>

// A CUDA runtime without a device, linked instead of NVIDIA's to test the host code of the GPU backend. Memory is host
// memory, enqueued work runs at once, and kernels and graphs do nothing. It records calls, detects misuse, and fails on
// request. One per process. Calls of CUDA may come from several threads; the current device and the last error are a
// thread's. The functions here must not run beside them, except LoseDevice() and HangDevice().
namespace qtts::fake_cuda {

struct Device {
  std::string name = "Fake GPU";
  int major = 9;
  int minor = 0;
  int processors = 132;
  size_t shared_per_block = 227 << 10;
  size_t memory = size_t{16} << 30;
  size_t used_by_others = 0;  // of it, by other programs
  bool has_code = true;       // true if kernels were compiled for it
  int code = 0;               // compute capability that they were compiled for, 10 * major + minor; 0: its own
  bool integrated = false;
  int memory_megahertz = 1000;
  int bus_bits = 1024;
  // Parts of its SMs: whether the driver knows them; their SMs are a multiple of part_step; whether kernels can be
  // launched there.
  bool has_parts = true;
  int part_step = 8;
  bool parts_take_kernels = true;
};

// Called by every Reset(), for caches of what the devices are.
void OnReset(void (*forget)());

// Resets the state: these devices, no faults, calls or misuse.
void Reset(std::vector<Device> devices = {Device()});
// Result of cudaDriverGetVersion(); 0: no driver. A driver older than the runtime has no devices.
void SetDriver(int version);

// Makes the n-th following call (1 = the next) do nothing but return `error`; with `for_ever`, all later calls too.
// Calls that free something or return versions or errors are not counted.
void FailCall(size_t n, cudaError_t error, bool for_ever);
// True if that call was made.
bool failed();

// All later calls on this device return `error`.
void LoseDevice(int device, cudaError_t error);

// From now on work on this device never ends: queries say cudaErrorNotReady, and calls that would block for ever return
// an error and are recorded as misuse.
void HangDevice(int device);
// The same of the device of the n-th following call, from that call on.
void HangAtCall(size_t n);

// Other programs leave `bytes` of a device's memory free.
void LeaveMemory(int device, size_t bytes);
// Device memory allocated now, and the most that was since Reset().
size_t used_memory(int device);
size_t most_memory(int device);

// The calls so far by name; launches by the kernel's name.
const std::vector<std::string>& calls();
// Kernels whose code was loaded so far, by a launch or a question about them, by name.
const std::set<std::string>& loaded_kernels();
// Misuse so far: memory freed twice or used beyond its end, a stream of another device, a stream left capturing.
const std::vector<std::string>& misuse();
// SMs of each part that was made so far.
const std::vector<int>& parts();
// Launches so far of graphs that were recorded on a part's stream.
size_t launched_in_parts();
// Number of memory blocks, streams, events, graphs and parts that are not freed.
size_t alive();

}  // namespace qtts::fake_cuda

#endif  // QTTS_TESTS_FAKE_CUDA_FAKE_CUDA_H_
