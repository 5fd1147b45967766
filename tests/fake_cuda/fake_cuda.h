// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_FAKE_CUDA_FAKE_CUDA_H_
#define QTTS_TESTS_FAKE_CUDA_FAKE_CUDA_H_

#include <driver_types.h>

#include <cstddef>
#include <string>
#include <vector>

// A CUDA runtime without a device, linked in place of NVIDIA's to test the host code of the GPU backend: memory is the
// host's, what is enqueued is done at once, kernels and graphs do nothing. It tells what was called, notices misuse,
// and fails where a test wants it to. One for the process. Not thread-safe, but for the current device, which is a
// thread's.
namespace qtts::fake_cuda {

struct Device {
  std::string name = "Fake GPU";
  int major = 9;
  int minor = 0;
  int processors = 132;
  size_t shared_per_block = 227 << 10;
  size_t memory = size_t{16} << 30;
  bool has_code = true;  // whether kernels were compiled for it
};

// Begins anew: with these devices, without faults, calls and misuse.
void Reset(std::vector<Device> devices = {Device()});
// What cudaDriverGetVersion() says; 0: there is no driver. One older than the runtime has no devices.
void SetDriver(int version);

// Lets the n-th of the calls that follow, 1 being the next, do nothing but return `error`; with `for_ever` all after it
// too. Calls that free something, or tell versions or errors, are not counted.
void FailCall(size_t n, cudaError_t error, bool for_ever);
// Whether that call has come.
bool failed();

// Leaves `bytes` of a device's memory to be had.
void LeaveMemory(int device, size_t bytes);

// What FailCall() can choose from: the calls so far by name, launches by the kernel's.
const std::vector<std::string>& calls();
// What should not have been done: memory freed twice or used beyond its end, a stream of another device, one that is
// left recording.
const std::vector<std::string>& misuse();
// Pieces of memory, streams, events and graphs that have not been freed.
size_t alive();

}  // namespace qtts::fake_cuda

#endif  // QTTS_TESTS_FAKE_CUDA_FAKE_CUDA_H_
