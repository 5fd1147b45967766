// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_OUTPUT_H_
#define GST_QTTS_OUTPUT_H_

#include "gstqttssrcprivate.h"

// The streaming thread: what the Speech tells becomes buffers of sound, each at its place on the timeline.

// GstPushSrcClass::create.
GstFlowReturn gst_qtts_src_create(GstPushSrc* src, GstBuffer** buffer);

// Forgets the frame of speech whose time has not come. With the streaming thread at rest, or in it.
void gst_qtts_src_drop_frame(GstQttsSrc* self);
// So does this; and the stream of sound begins anew.
void gst_qtts_src_restart(GstQttsSrc* self);

#endif  // GST_QTTS_OUTPUT_H_
