// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_END_REASON_H_
#define QTTS_END_REASON_H_

namespace qtts {

// Why an utterance ended. The same enum is used from a device's slot to the message that an application gets. Backends
// give the first three and kError, streams the first seven, the element all. This header includes nothing, since
// kernels include it.
enum class EndReason : int {
  kNone = 0,      // still running
  kComplete,      // the model ended the utterance
  kMaxDuration,   // max_new_tokens was reached
  kRunaway,       // Request::runaway_guard stopped it
  kBusy,          // Request::max_wait expired before it could begin: no slot, or no memory or time of the device
  kCancelled,     // of a stream: Cancel(), or the engine was destroyed; of the element: perhaps before it began
  kError,         // see Stream::status(); of the element also: the engine refused it
  kClipped,       // the time for its text ended
  kNothingToSay,  // IsSayable() found nothing in it, and the engine was not asked
};

// Returns the name in messages and in the output of qtts-tool: "complete", "interrupted", … Empty for kNone.
const char* EndReasonName(EndReason reason);

}  // namespace qtts

#endif  // QTTS_END_REASON_H_
