// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_RESOURCES_H_
#define QTTS_RESOURCES_H_

#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "qtts/status.h"

// What runs out is an error, never an abort. The rule for the engine and for the element: no std::thread is started but
// by StartThread(), and whatever is called from outside (the engine's functions, the element's, a thread's first
// function) runs inside CatchExhaustion().
namespace qtts {

// "not enough memory to `purpose`" and what to do: kResourceExhausted. Needs no memory if there is none: then `purpose`
// is left out.
Status OutOfMemory(const char* purpose) noexcept;
// The same for threads. `reason` is the system's.
Status OutOfThreads(const char* purpose, const char* reason) noexcept;

// What `function` returns, a Status or a Result; kResourceExhausted if memory or threads run out in it. `purpose` is
// what it does, as in "load the model".
template <typename Function>
auto CatchExhaustion(const char* purpose, const Function& function) -> decltype(function()) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return OutOfMemory(purpose);
  } catch (const std::length_error&) {  // a size that no memory has
    return OutOfMemory(purpose);
  } catch (const std::system_error& error) {
    return OutOfThreads(purpose, error.what());
  }
}

// What every thread of the engine and of the element begins with: faults in mapped files reach their handler, whatever
// signals the thread's maker blocks.
void BeginThread() noexcept;

// Runs `body` on a thread of its own, which the caller has to join. Nothing may be thrown out of `body`.
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
