// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_ERROR_H_
#define GST_QTTS_ERROR_H_

#include <gst/gst.h>

#include "qtts/status.h"

namespace gstqtts {

// Domain and code of a GStreamer message.
struct GstErrorCode {
  GQuark domain;
  gint code;
};

// Returns the domain and code by which a failure of the engine appears on the bus:
//
//   invalid argument    RESOURCE SETTINGS         a property does not suit the model
//   not found           RESOURCE NOT_FOUND        no such model folder or file
//   unreadable          RESOURCE OPEN_READ
//   corrupt model       STREAM FORMAT             the files are there, what they hold is broken
//   unsupported         STREAM NOT_IMPLEMENTED
//   resource exhausted  RESOURCE NO_SPACE_LEFT    memory, on the device or not
//   device unavailable  LIBRARY INIT              no GPU, no driver, GPU lost
//   others              LIBRARY FAILED
GstErrorCode ErrorCodeOf(const qtts::Status& status);

// Posts one ERROR or WARNING with the status' message as its text. `what` is for developers.
void PostError(GstElement* element, const qtts::Status& status, const char* what);
void PostWarning(GstElement* element, const qtts::Status& status, const char* what);

// Returns true if an utterance failed because of its own settings (speaker, voice), so that one with other settings may
// succeed. False for errors of its text and for lack of memory.
bool IsAboutSettings(const qtts::Status& status);

}  // namespace gstqtts

#endif  // GST_QTTS_ERROR_H_
