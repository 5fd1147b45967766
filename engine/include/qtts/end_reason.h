// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_END_REASON_H_
#define QTTS_END_REASON_H_

namespace qtts {

// Why an utterance ended: the same enum from a slot of a device to the application. Backends use the first three and
// kError. Includes nothing, since kernels include it.
enum class EndReason : int {
  kNone = 0,     // still running
  kComplete,     // the model ended the utterance
  kMaxDuration,  // max_new_tokens struck first
  kRunaway,      // Request::runaway_guard struck
  kBusy,         // Request::max_wait ran out before its turn came
  kCancelled,    // Cancel(), or the engine went away
  kError,        // see Stream::status()
};

}  // namespace qtts

#endif  // QTTS_END_REASON_H_
