// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_RESOURCES_H_
#define QTTS_RESOURCES_H_

#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "qtts/status.h"

// Lack of memory or threads is an error, never an abort. Rule for engine and element: start threads only with
// StartThread(), and run every entry point (the engine's functions, the element's, a thread's first function) inside
// CatchExhaustion().
namespace qtts {

// Returns kResourceExhausted: "not enough memory to `purpose`" and the remedy. If there is no memory for the message,
// `purpose` is left out.
Status OutOfMemory(const char* purpose) noexcept;
// Returns the same for threads. `reason`: the system's error.
Status OutOfThreads(const char* purpose, const char* reason) noexcept;

// Returns the result of `function`, a Status or a Result; kResourceExhausted if memory or threads run out in it.
// `purpose` names the action, as in "load the model".
template <typename Function>
auto CatchExhaustion(const char* purpose, const Function& function) -> decltype(function()) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return OutOfMemory(purpose);
  } catch (const std::length_error&) {  // a size above any memory
    return OutOfMemory(purpose);
  } catch (const std::system_error& error) {
    return OutOfThreads(purpose, error.what());
  }
}

// Prepares a thread: must be the first call of every thread of engine and element. Unblocks SIGBUS, so that faults in
// mapped files reach their handler, even if the creating thread blocks signals.
void BeginThread() noexcept;

// Runs `body` on a new thread, which the caller must join. `body` must not throw.
template <typename Body>
Result<std::thread> StartThread(const char* purpose, Body&& body) {
  return CatchExhaustion(purpose, [&]() -> Result<std::thread> {
    return std::thread([body = std::forward<Body>(body)]() mutable {
      BeginThread();
      body();
    });
  });
}

}  // namespace qtts

#endif  // QTTS_RESOURCES_H_
