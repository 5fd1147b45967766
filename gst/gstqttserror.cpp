// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttserror.h"

#include <string>

namespace gstqtts {
namespace {

void Post(GstElement* element, GstMessageType type, const qtts::Status& status, const char* what) {
  const GstErrorCode code = ErrorCodeOf(status);
  const std::string debug = std::string(what) + ": " + std::string(qtts::StatusCodeName(status.code()));
  gst_element_message_full(element, type, code.domain, code.code, g_strdup(status.message().c_str()),
                           g_strdup(debug.c_str()), __FILE__, GST_FUNCTION, __LINE__);
}

}  // namespace

GstErrorCode ErrorCodeOf(const qtts::Status& status) {
  switch (status.code()) {
    case qtts::StatusCode::kInvalidArgument:
      return {GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_SETTINGS};
    case qtts::StatusCode::kNotFound:
      return {GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_NOT_FOUND};
    case qtts::StatusCode::kUnreadable:
      return {GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_OPEN_READ};
    case qtts::StatusCode::kCorruptModel:
      return {GST_STREAM_ERROR, GST_STREAM_ERROR_FORMAT};
    case qtts::StatusCode::kUnsupported:
      return {GST_STREAM_ERROR, GST_STREAM_ERROR_NOT_IMPLEMENTED};
    case qtts::StatusCode::kResourceExhausted:
      return {GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_NO_SPACE_LEFT};
    case qtts::StatusCode::kBusy:
      return {GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_BUSY};
    case qtts::StatusCode::kDeviceUnavailable:
      return {GST_LIBRARY_ERROR, GST_LIBRARY_ERROR_INIT};
    case qtts::StatusCode::kOk:
    case qtts::StatusCode::kCancelled:
    case qtts::StatusCode::kInternal:
      break;
  }
  return {GST_LIBRARY_ERROR, GST_LIBRARY_ERROR_FAILED};
}

void PostError(GstElement* element, const qtts::Status& status, const char* what) {
  Post(element, GST_MESSAGE_ERROR, status, what);
}

void PostWarning(GstElement* element, const qtts::Status& status, const char* what) {
  Post(element, GST_MESSAGE_WARNING, status, what);
}

bool IsAboutSettings(const qtts::Status& status) {
  switch (status.code()) {
    case qtts::StatusCode::kInvalidArgument:
    case qtts::StatusCode::kNotFound:
    case qtts::StatusCode::kUnreadable:
    case qtts::StatusCode::kCorruptModel:
    case qtts::StatusCode::kUnsupported:
      return true;
    default:
      return false;
  }
}

}  // namespace gstqtts
