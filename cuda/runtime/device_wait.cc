// SPDX-License-Identifier: LGPL-2.1-or-later
#include "runtime/device_wait.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <thread>

#include "qtts/polling.h"
#include "runtime/memory_count.h"

namespace qtts::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// A bit for each device; devices from 64 on share the last.
std::atomic<uint64_t> hung = 0;

uint64_t BitOf(int device) { return uint64_t{1} << static_cast<unsigned>(std::clamp(device, 0, 63)); }

// Returns the seconds by QTTS_CUDA_TIMEOUT; 0 if it is no number above 0.
double TimeoutSeconds() {
  constexpr double kDefault = 20;
  constexpr double kMax = 1e6;
  const char* const value = std::getenv("QTTS_CUDA_TIMEOUT");
  if (value == nullptr || *value == '\0') return kDefault;
  char* end = nullptr;
  const double seconds = std::strtod(value, &end);
  return *end == '\0' && seconds > 0 ? std::min(seconds, kMax) : 0;
}

// Time that a thread has waited. Time in which it could not poll (a stopped process, a suspended machine) counts as no
// more than kMaxStep.
class Waited {
 public:
  std::chrono::nanoseconds Count() {
    constexpr std::chrono::nanoseconds kMaxStep = std::chrono::milliseconds(100);
    const auto now = Clock::now();
    waited_ += std::min<std::chrono::nanoseconds>(now - last_, kMaxStep);
    last_ = now;
    return waited_;
  }

 private:
  Clock::time_point last_ = Clock::now();
  std::chrono::nanoseconds waited_{0};
};

cudaError_t GiveUp() {
  int device = 0;
  if (cudaGetDevice(&device) == cudaSuccess) hung |= BitOf(device);
  return cudaErrorLaunchTimeout;
}

// cudaErrorNotReady is no error, but CUDA may keep it as the thread's last one.
template <typename Handle>
cudaError_t Ask(cudaError_t (*query)(Handle), Handle handle) {
  const cudaError_t state = query(handle);
  if (state == cudaErrorNotReady) (void)cudaGetLastError();
  return state;
}

template <typename Handle>
cudaError_t Await(cudaError_t (*query)(Handle), Handle handle, std::chrono::nanoseconds patience) {
  if (CountsMemory()) return cudaSuccess;
  if (HangsHere()) return cudaErrorLaunchTimeout;
  if (const cudaError_t state = Ask(query, handle); state != cudaErrorNotReady) return state;
  constexpr std::chrono::microseconds kSleep{50};
  const PollPermit permit;
  for (Waited waited;;) {
    const std::chrono::nanoseconds so_far = waited.Count();
    const cudaError_t state = Ask(query, handle);
    if (state != cudaErrorNotReady) return state;
    if (so_far > DeviceTimeout()) return GiveUp();
    if (permit.granted() && so_far < patience) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kSleep);
    }
  }
}

}  // namespace

std::chrono::nanoseconds DeviceTimeout() {
  static const auto timeout =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(TimeoutSeconds()));
  return timeout;
}

cudaError_t AwaitStream(cudaStream_t stream, std::chrono::milliseconds patience) {
  return Await(cudaStreamQuery, stream, patience);
}

cudaError_t AwaitEvent(cudaEvent_t event, std::chrono::milliseconds patience) {
  return Await(cudaEventQuery, event, patience);
}

cudaError_t CopyAndWait(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (CountsMemory()) return cudaSuccess;
  // A copy to pageable memory returns at its end, so what comes before it is awaited here.
  cudaError_t error = AwaitStream(nullptr);
  if (error == cudaSuccess) error = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  return error == cudaSuccess ? AwaitStream(nullptr) : error;
}

cudaError_t UseDevice(int device) {
  const cudaError_t error = cudaSetDevice(device);
  return error == cudaSuccess && (hung & BitOf(device)) != 0 ? cudaErrorLaunchTimeout : error;
}

bool HangsHere() {
  if (hung == 0) return false;
  int device = 0;
  return cudaGetDevice(&device) == cudaSuccess && (hung & BitOf(device)) != 0;
}

bool TimeoutIsValid() { return TimeoutSeconds() > 0; }

void ForgetHungDevices() { hung = 0; }

}  // namespace qtts::cuda
