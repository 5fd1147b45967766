// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_MESSAGES_H_
#define GST_QTTS_MESSAGES_H_

#include <gst/gst.h>

#include "gstqttsreport.h"

namespace gstqtts {

// Posts a report as an element message: qtts-utterance-started, qtts-text-progress, qtts-mark or
// qtts-utterance-finished. The element's documentation lists their fields.
void PostReport(GstElement* element, const Report& report);

}  // namespace gstqtts

#endif  // GST_QTTS_MESSAGES_H_
