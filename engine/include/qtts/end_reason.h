// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_END_REASON_H_
#define QTTS_END_REASON_H_

namespace qtts {

// Why an utterance ended. The same enum is used from a device's slot to the application. Backends give the first three
// and kError. This header includes nothing, since kernels include it.
enum class EndReason : int {
  kNone = 0,     // still running
  kComplete,     // the model ended the utterance
  kMaxDuration,  // max_new_tokens was reached
  kRunaway,      // Request::runaway_guard stopped it
  kBusy,         // Request::max_wait expired before it got a slot
  kCancelled,    // Cancel(), or the engine was destroyed
  kError,        // see Stream::status()
};

}  // namespace qtts

#endif  // QTTS_END_REASON_H_
