// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_LIMITS_H_
#define GST_QTTS_LIMITS_H_

#include "qtts/status.h"

namespace gstqtts {

// GLib and GStreamer do not fail cleanly where descriptors or threads run out inside them: polls complain for ever, and
// a pad whose task has no thread hangs the state change that stops it. So what an element is going to need is tried
// before.

// Whether the process may open the files that an element needs at once: weights, which stay open, and, for a reference
// recording, a pipeline of its own with a bus, the recording and what decoders open.
qtts::Status CheckDescriptors();

// Whether the threads of an element can be started: its loader's, its streaming thread and the one by which GLib starts
// that. Takes some 0.1 ms.
qtts::Status CheckThreads();

}  // namespace gstqtts

#endif  // GST_QTTS_LIMITS_H_
