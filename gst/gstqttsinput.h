// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_INPUT_H_
#define GST_QTTS_INPUT_H_

#include "gstqttssrcprivate.h"

// The sink pad: what comes by it is handed to the Speech. It is there on request, once.

// GstElementClass::request_new_pad and ::release_pad. Thread-safe.
GstPad* gst_qtts_src_request_new_pad(GstElement* element, GstPadTemplate* templ, const gchar* name,
                                     const GstCaps* caps);
void gst_qtts_src_release_pad(GstElement* element, GstPad* pad);

#endif  // GST_QTTS_INPUT_H_
