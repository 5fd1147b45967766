// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/status.h"

namespace qtts {

std::string_view StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid-argument";
    case StatusCode::kNotFound:
      return "not-found";
    case StatusCode::kUnreadable:
      return "unreadable";
    case StatusCode::kCorruptModel:
      return "corrupt-model";
    case StatusCode::kUnsupported:
      return "unsupported";
    case StatusCode::kResourceExhausted:
      return "resource-exhausted";
    case StatusCode::kDeviceUnavailable:
      return "device-unavailable";
    case StatusCode::kBusy:
      return "busy";
    case StatusCode::kCancelled:
      return "cancelled";
    case StatusCode::kInternal:
      return "internal";
  }
  return "unknown";
}

}  // namespace qtts
