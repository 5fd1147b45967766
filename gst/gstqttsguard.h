// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_GUARD_H_
#define GST_QTTS_GUARD_H_

#include <gst/gst.h>

#include <type_traits>

#include "gstqttserror.h"
#include "qtts/resources.h"

namespace gstqtts {

// Runs `function` for GStreamer, which an exception must not reach: it would end the process. If memory or threads run
// out inside, the element posts an error, and this returns false. Any other exception is a mistake and ends the
// process.
template <typename Function>
// NOLINTNEXTLINE(bugprone-exception-escape)
bool RunGuarded(GstElement* element, const Function& function) noexcept {
  const qtts::Status status = qtts::CatchExhaustion("go on", [&] {
    function();
    return qtts::Status::Ok();
  });
  if (status.ok()) return true;
  (void)qtts::CatchExhaustion("post an error", [&] {
    PostError(element, status, "memory or threads ran out");
    return qtts::Status::Ok();
  });
  return false;
}

// Wraps the element's functions for GStreamer with RunGuarded(). If memory or threads run out inside, they return
// `kRefused`.
//
// Allocations inside GLib and GStreamer are not covered: g_malloc() and g_thread_new() abort.
template <auto kFunction, auto... kRefused>
struct Guarded;

template <typename R, typename Self, typename... Args, R (*kFunction)(Self*, Args...), auto... kRefused>
struct Guarded<kFunction, kRefused...> {
  // NOLINTNEXTLINE(bugprone-exception-escape)
  static R Call(Self* self, Args... args) noexcept {
    if constexpr (std::is_void_v<R>) {
      RunGuarded(GST_ELEMENT_CAST(self), [&] { kFunction(self, args...); });
    } else {
      R result = (kRefused, ...);
      RunGuarded(GST_ELEMENT_CAST(self), [&] { result = kFunction(self, args...); });
      return result;
    }
  }
};

}  // namespace gstqtts

#endif  // GST_QTTS_GUARD_H_
