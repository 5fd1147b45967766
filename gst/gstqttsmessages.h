// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_MESSAGES_H_
#define GST_QTTS_MESSAGES_H_

#include <gst/gst.h>

#include "gstqttsreport.h"

namespace gstqtts {

// A report as an element message of `source`: qtts-utterance-started, qtts-text-progress or
// qtts-utterance-finished. The element's documentation lists their fields.
GstMessage* NewMessage(GstObject* source, const Report& report);

// "complete", "interrupted", …
const gchar* FinishReasonName(FinishReason reason);

}  // namespace gstqtts

#endif  // GST_QTTS_MESSAGES_H_
