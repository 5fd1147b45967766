// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/resources.h"

#include <csignal>
#include <exception>
#include <string>

namespace qtts {
namespace {

constexpr const char* kFreeMemory = "; free some, or raise its limit (ulimit -v, the container's)";
constexpr const char* kFreeThreads =
    "; end some, free memory for their stacks, or raise their limit (ulimit -u, the container's pids.max)";

// Allocated at start-up, while there is memory. Copies of a Status allocate nothing.
const Status no_memory_at_all = Status::ResourceExhausted(std::string("not enough memory") + kFreeMemory);

}  // namespace

Status OutOfMemory(const char* purpose) noexcept {
  try {
    return Status::ResourceExhausted(std::string("not enough memory to ") + purpose + kFreeMemory);
  } catch (...) {
    return no_memory_at_all;
  }
}

void BeginThread() noexcept {
  // Allocates libstdc++'s thread-local data for exceptions now. The C library allocates it at first use and aborts if
  // there is no memory.
  (void)std::uncaught_exceptions();
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGBUS);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

Status OutOfThreads(const char* purpose, const char* reason) noexcept {
  try {
    return Status::ResourceExhausted(std::string("no thread could be started to ") + purpose + ": " + reason +
                                     kFreeThreads);
  } catch (...) {
    return no_memory_at_all;
  }
}

}  // namespace qtts
