// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_GUARD_H_
#define GST_QTTS_GUARD_H_

#include <gst/gst.h>

#include <type_traits>

#include "gstqttserror.h"
#include "qtts/resources.h"

namespace gstqtts {

// Wraps the element's functions for GStreamer. If memory or threads run out inside, the element posts an error and the
// function returns `kRefused`. An exception leaving them would end the process.
//
// Allocations inside GLib and GStreamer are not covered: g_malloc() and g_thread_new() abort.
template <auto kFunction, auto... kRefused>
struct Guarded;

template <typename R, typename Self, typename... Args, R (*kFunction)(Self*, Args...), auto... kRefused>
struct Guarded<kFunction, kRefused...> {
  static R Call(Self* self, Args... args) noexcept {
    if constexpr (std::is_void_v<R>) {
      Run(self, [&] { kFunction(self, args...); });
    } else {
      R result = (kRefused, ...);
      Run(self, [&] { result = kFunction(self, args...); });
      return result;
    }
  }

 private:
  template <typename Function>
  static void Run(Self* self, const Function& function) {
    const qtts::Status status = qtts::CatchExhaustion("go on", [&] {
      function();
      return qtts::Status::Ok();
    });
    if (status.ok()) return;
    (void)qtts::CatchExhaustion("post an error", [&] {
      PostError(GST_ELEMENT_CAST(self), status, "memory or threads ran out");
      return qtts::Status::Ok();
    });
  }
};

}  // namespace gstqtts

#endif  // GST_QTTS_GUARD_H_
