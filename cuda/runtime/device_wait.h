// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_RUNTIME_DEVICE_WAIT_H_
#define QTTS_CUDA_RUNTIME_DEVICE_WAIT_H_

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>

// Waiting for the GPU, for a bounded time. A GPU that hangs reports no error: its work never ends, and every call of
// CUDA that waits for it blocks for ever, also those that free memory. The host therefore waits only here, by polling.
// After DeviceTimeout() without an end the device counts as hung, for as long as the process runs: the wait returns
// cudaErrorLaunchTimeout, a fault (cuda_error.h), and memory freed on it afterwards stays allocated until the process
// ends. Thread-safe.
namespace qtts::cuda {

// Returns 20 s, or the environment variable QTTS_CUDA_TIMEOUT in seconds, read once. Time in which the process was
// stopped does not count.
std::chrono::nanoseconds DeviceTimeout();

// Waits for all work enqueued on `stream`, or before `event` was recorded. `patience`: how long the thread polls
// without sleeping, if it gets a PollPermit.
inline constexpr std::chrono::milliseconds kPatience{5};
cudaError_t AwaitStream(cudaStream_t stream, std::chrono::milliseconds patience = kPatience);
cudaError_t AwaitEvent(cudaEvent_t event, std::chrono::milliseconds patience = kPatience);

// Copies from or to pageable memory; done at the return. Work on the default stream ends first.
cudaError_t CopyAndWait(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);

// Makes `device` the thread's current one. cudaErrorLaunchTimeout if it has hung.
cudaError_t UseDevice(int device);
// Returns true if a wait for the current device has been given up. Then calls that wait for it must be left out.
bool HangsHere();
// Returns true if QTTS_CUDA_TIMEOUT is unset or a number above 0.
bool TimeoutIsValid();
// Forgets which devices hang. For tests, where a stand-in exchanges the devices.
void ForgetHungDevices();

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_RUNTIME_DEVICE_WAIT_H_
