// SPDX-License-Identifier: LGPL-2.1-or-later
#include "base/bus_errors.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <mutex>

namespace qtts {
namespace {

// All ranges ever watched. The handler reads the list, so entries are reused, never freed.
std::atomic<BusErrors::Range*> ranges = nullptr;

struct sigaction previous = {};
uintptr_t page_size = 4096;

// Passes a SIGBUS outside all ranges to the previous handler.
void CallPreviousHandler(int signal, siginfo_t* info, void* context) {
  if ((previous.sa_flags & SA_SIGINFO) != 0) return previous.sa_sigaction(signal, info, context);
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) return previous.sa_handler(signal);
  // With the default action restored, the instruction faults again on return and ends the process. A signal that was
  // sent (not a fault) must be raised again.
  sigaction(signal, &previous, nullptr);
  if (info->si_code <= 0) raise(signal);
}

}  // namespace

struct BusErrors::Handler {
  // Handles the signal. Async-signal-safe: lock-free atomics and system calls only.
  static void Handle(int signal, siginfo_t* info, void* context) {
    const int error = errno;
    const auto* const address = static_cast<const std::byte*>(info->si_addr);
    for (Range* range = info->si_code > 0 ? ranges.load() : nullptr; range != nullptr; range = range->next_) {
      const std::byte* const begin = range->begin_;
      const std::byte* const end = range->end_;
      // The second read of begin_ detects a range that is being reused.
      if (address < begin || address >= end || begin != range->begin_) continue;
      range->lost_ = true;
      std::byte* const page = const_cast<std::byte*>(address) - reinterpret_cast<uintptr_t>(address) % page_size;
      if (mmap(page, static_cast<size_t>(end - page), PROT_READ, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0) ==
          MAP_FAILED) {
        break;
      }
      errno = error;
      return;
    }
    errno = error;
    CallPreviousHandler(signal, info, context);
  }

  static void Install() {
    page_size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    struct sigaction action = {};
    action.sa_sigaction = Handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &previous);
  }
};

BusErrors::Range* BusErrors::Watch(std::span<const std::byte> mapping) {
  static std::once_flag installed;
  std::call_once(installed, Handler::Install);
  Range* range = ranges;
  for (bool free = false; range != nullptr; range = range->next_) {
    if (range->taken_.compare_exchange_strong(free, true)) break;
    free = false;
  }
  if (range == nullptr) {
    range = new Range;
    range->next_ = ranges;
    while (!ranges.compare_exchange_weak(range->next_, range)) {
    }
  }
  range->lost_ = false;
  range->begin_ = mapping.data();
  range->end_ = mapping.data() + mapping.size();
  return range;
}

void BusErrors::Forget(Range* range) {
  range->end_ = nullptr;
  range->taken_ = false;
}

}  // namespace qtts
