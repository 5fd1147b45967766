// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_PROPERTIES_H_
#define GST_QTTS_PROPERTIES_H_

#include "gstqttssrcprivate.h"

// The properties of the element, their documentation, and what a change of one does at once. Thread-safe, but for the
// first, which belongs to the initialisation of the class.

void gst_qtts_src_install_properties(GObjectClass* klass);

// What fills the time without text. The answer is never kAuto.
gstqtts::IdleMode gst_qtts_src_get_idle_mode(GstQttsSrc* self);
// Queues the text property once more.
void gst_qtts_src_speak_property(GstQttsSrc* self);

#endif  // GST_QTTS_PROPERTIES_H_
