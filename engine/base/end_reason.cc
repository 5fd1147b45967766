// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/end_reason.h"

namespace qtts {

const char* EndReasonName(EndReason reason) {
  switch (reason) {
    case EndReason::kNone:
      break;
    case EndReason::kComplete:
      return "complete";
    case EndReason::kMaxDuration:
      return "max-duration";
    case EndReason::kRunaway:
      return "runaway";
    case EndReason::kBusy:
      return "busy";
    case EndReason::kCancelled:
      return "interrupted";
    case EndReason::kError:
      return "error";
    case EndReason::kClipped:
      return "clipped";
    case EndReason::kNothingToSay:
      return "nothing-to-say";
  }
  return "";
}

}  // namespace qtts
