// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_LOG_H_
#define GST_QTTS_LOG_H_

#include <gst/gst.h>

// "qttssrc": the element.
GST_DEBUG_CATEGORY_EXTERN(gst_qtts_src_debug);

namespace gstqtts {

// Lets the engine log in GStreamer's debug category "qttsengine": models at INFO, utterances at DEBUG, frames at
// TRACE. Called once, before the first engine.
void InitEngineLog();

}  // namespace gstqtts

#endif  // GST_QTTS_LOG_H_
